# Without libcurl (DOPPLER_HUB=OFF) models that are there are still found, listed and removed.
get_target_property(DOPPLER_HUB_FILES doppler_hub SOURCES)
if(DOPPLER_HUB)
  list(FILTER DOPPLER_HUB_FILES EXCLUDE REGEX "/http_none\\.cpp$")
  target_link_libraries(doppler_hub PRIVATE CURL::libcurl)
else()
  list(FILTER DOPPLER_HUB_FILES EXCLUDE REGEX "/http_curl\\.cpp$")
endif()
set_target_properties(doppler_hub PROPERTIES SOURCES "${DOPPLER_HUB_FILES}")
