# The HTML report's page, style and program.
include(embed_texts)
doppler_embed_texts(doppler_inspect ${CMAKE_SOURCE_DIR}/src/inspect/report "html;css;js" inspect/report/report_files.h ReportFile
                    doppler::report_files)
