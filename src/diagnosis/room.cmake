# The HTML report's page, style and program.
include(embed_texts)
doppler_embed_texts(doppler_diagnosis ${PROJECT_SOURCE_DIR}/src/diagnosis/report "html;css;js" diagnosis/report/report_files.h ReportFile
                    doppler::diagnosis::report_files)
# The texts that recordings hold.
doppler_embed_texts(doppler_diagnosis ${PROJECT_SOURCE_DIR}/tools json diagnosis/compare/text_probes.h ProbeFile
                    doppler::diagnosis::probe_files)
