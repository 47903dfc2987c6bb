# What the pages of comparisons and diagnoses have of their own: sections, and what fills them.
include(embed_texts)
doppler_embed_texts(doppler_diagnosis ${PROJECT_SOURCE_DIR}/src/diagnosis/report "html;js" diagnosis/report/report_files.h page::PageFile
                    doppler::diagnosis::report_files)
