target_link_libraries(doppler_base PUBLIC nlohmann_json::nlohmann_json)
target_link_libraries(doppler_base PRIVATE PkgConfig::UTF8PROC)
