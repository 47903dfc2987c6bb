# Everything outside the standard library; the README names each one with its reason.
# scripts/install_deps.sh installs them on Debian and Ubuntu.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # a project that adds this one by add_subdirectory links them, too
include(DopplerDependencies)
find_package(nlohmann_json REQUIRED)
if(DOPPLER_PROGRAM)
  find_package(CLI11 REQUIRED)
  if(DOPPLER_HUB)
    find_package(CURL 7.85 REQUIRED)  # CURLOPT_PROTOCOLS_STR
  endif()
  if(NOT WIN32)  # whose consoles edit lines themselves
    pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET GLOBAL libedit)
  endif()
endif()
if(DOPPLER_TESTS)
  find_package(GTest REQUIRED)
endif()
if(DOPPLER_GPU)
  include(webgpu)
endif()
