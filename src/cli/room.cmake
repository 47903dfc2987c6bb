target_link_libraries(doppler_cli PRIVATE CLI11::CLI11)
