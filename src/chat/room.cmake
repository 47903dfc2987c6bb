target_link_libraries(doppler_chat PRIVATE PkgConfig::UTF8PROC)
