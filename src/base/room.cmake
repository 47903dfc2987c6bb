target_link_libraries(doppler_base PUBLIC nlohmann_json::nlohmann_json Threads::Threads)
target_link_libraries(doppler_base PRIVATE OpenSSL::Crypto PkgConfig::UTF8PROC)
