# What every page has: skeleton, style, and the program's common parts.
include(embed_texts)
doppler_embed_texts(doppler_page ${PROJECT_SOURCE_DIR}/src/page "html;css;js" page/page_files.h PageFile doppler::page::page_files)
