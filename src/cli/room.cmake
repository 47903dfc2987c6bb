target_link_libraries(doppler_cli PRIVATE CLI11::CLI11)
# The recorder for --reference auto.
include(embed_texts)
doppler_embed_texts(doppler_cli ${PROJECT_SOURCE_DIR}/tools py cli/auto_reference.h ToolFile doppler::cli::tool_files)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cli/cli.cpp PROPERTIES
                            COMPILE_DEFINITIONS DOPPLER_VERSION="${PROJECT_VERSION}")
