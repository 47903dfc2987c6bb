# Windows on x86-64 by Debian's mingw-w64 (the variant whose std::thread works), with the libraries of DOPPLER_SYSROOT.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_FIND_ROOT_PATH ${DOPPLER_SYSROOT} /usr/x86_64-w64-mingw32)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DOPPLER_SYSROOT)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
# Windows 10. One file without the compiler's libraries, so that nothing need lie beside it.
set(CMAKE_C_FLAGS_INIT "-D_WIN32_WINNT=0x0A00")
# The libraries are archives, which their headers must be told.
set(CMAKE_CXX_FLAGS_INIT "-D_WIN32_WINNT=0x0A00 -Wa,-mbig-obj -DPCRE2_STATIC -DUTF8PROC_STATIC")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")
set(ENV{PKG_CONFIG_LIBDIR} ${DOPPLER_SYSROOT}/lib/pkgconfig)
