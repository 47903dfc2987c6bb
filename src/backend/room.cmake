target_link_libraries(doppler_backend PRIVATE PkgConfig::HWY)
