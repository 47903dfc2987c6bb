# One set of sources for each system: standard/ holds what the standard library does where it has threads and files, so that
# posix/ and windows/ need not. A port is a folder beside them.
if(WIN32)
  set(DOPPLER_SYSTEM windows)
else()
  set(DOPPLER_SYSTEM posix)
endif()
get_target_property(DOPPLER_SYSTEM_FILES doppler_system SOURCES)
list(FILTER DOPPLER_SYSTEM_FILES INCLUDE REGEX "/src/system/(standard|${DOPPLER_SYSTEM})/")
set_target_properties(doppler_system PROPERTIES SOURCES "${DOPPLER_SYSTEM_FILES}")

target_link_libraries(doppler_system PUBLIC Threads::Threads)
if(WIN32)
  target_link_libraries(doppler_system PRIVATE bcrypt)
else()
  target_link_libraries(doppler_system PRIVATE OpenSSL::Crypto)
endif()
