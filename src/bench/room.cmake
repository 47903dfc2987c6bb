# What a measurement's page has of its own: sections, and what fills them.
include(embed_texts)
doppler_embed_texts(doppler_bench ${PROJECT_SOURCE_DIR}/src/bench/page "html;js" bench/page/bench_files.h page::PageFile
                    doppler::bench::bench_files)
