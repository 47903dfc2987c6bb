# What programs with Doppler's archive link besides. The build includes this, and so does find_package(Doppler COMPONENTS static).
find_package(PkgConfig REQUIRED)
if(NOT DOPPLER_WEB)  # which has one thread
  find_package(Threads REQUIRED)
endif()
find_package(fmt REQUIRED)
if(NOT WIN32 AND NOT DOPPLER_WEB)  # which have SHA-256 of their own
  find_package(OpenSSL REQUIRED COMPONENTS Crypto)
endif()
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET GLOBAL libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET GLOBAL libutf8proc)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET GLOBAL libhwy)
