target_link_libraries(doppler_cli PRIVATE CLI11::CLI11)
# The recorder for --reference auto.
include(embed_texts)
doppler_embed_texts(doppler_cli ${PROJECT_SOURCE_DIR}/tools "py;json" cli/auto_reference.h ToolFile doppler::cli::tool_files)
# The page of doppler web.
doppler_embed_texts(doppler_cli ${PROJECT_SOURCE_DIR}/web/harness "html;js" cli/web/session.h HarnessFile doppler::cli::harness_files)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cli/cli.cpp PROPERTIES
                            COMPILE_DEFINITIONS DOPPLER_VERSION="${PROJECT_VERSION}")

# The line editor of a chat; Windows' consoles edit lines themselves.
get_target_property(DOPPLER_CLI_FILES doppler_cli SOURCES)
if(WIN32)
  list(FILTER DOPPLER_CLI_FILES EXCLUDE REGEX "/line_editor_libedit\\.cpp$")
else()
  list(FILTER DOPPLER_CLI_FILES EXCLUDE REGEX "/line_editor_none\\.cpp$")
  target_link_libraries(doppler_cli PRIVATE PkgConfig::LIBEDIT)
endif()
set_target_properties(doppler_cli PROPERTIES SOURCES "${DOPPLER_CLI_FILES}")
