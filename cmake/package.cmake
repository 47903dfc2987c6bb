# make package: a .deb, by CPack. scripts/test_package installs it in a bare Debian and runs it there.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME doppler)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)  # doppler_VERSION_ARCHITECTURE.deb
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "Doppler maintainers <maintainers@users.noreply.example>" CACHE STRING "Who a package names")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language models on this machine, and a look inside them")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Doppler runs language models from Hugging Face folders and GGUF files on CPUs
and GPUs, and shows what happens inside: every stage of every layer can be
read, compared with a recording and explained. The package holds the program,
the libraries for C and C++ programs, and their headers.")
# The programs' and libraries' own needs are read from them; Vulkan is opened at run time, where there is a GPU.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${DOPPLER_WEBGPU_ROOT}/lib)
set(recommended "")
if(DOPPLER_GPU)
  list(APPEND recommended libvulkan1)
endif()
if(DOPPLER_HUB)
  list(APPEND recommended ca-certificates)  # whom libcurl believes
endif()
list(JOIN recommended ", " CPACK_DEBIAN_PACKAGE_RECOMMENDS)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "mesa-vulkan-drivers, libfmt-dev, libhwy-dev, libpcre2-dev, libssl-dev, libutf8proc-dev")
# Other packages that link the library need this one; the loader's cache is renewed by a trigger.
set(control ${PROJECT_BINARY_DIR}/install/control)
file(WRITE ${control}/shlibs "libdoppler ${PROJECT_VERSION_MAJOR} doppler (>= ${PROJECT_VERSION})\n")
file(WRITE ${control}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${control}/shlibs ${control}/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_files.cmake)
include(CPack)
