target_link_libraries(doppler_cli PRIVATE CLI11::CLI11)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cli/cli.cpp PROPERTIES
                            COMPILE_DEFINITIONS DOPPLER_VERSION="${PROJECT_VERSION}")
