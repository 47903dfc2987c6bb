# WebAssembly for browsers and node: Debian's clang-19, wasi-libc and libc++, with the libraries of DOPPLER_SYSROOT, which
# scripts/install_web.sh makes of Debian's sources. What the module imports is written in web/.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(DOPPLER_WEB ON)
set(DOPPLER_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../../.deps/web CACHE PATH "Where scripts/install_web.sh has put the libraries")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DOPPLER_SYSROOT)
foreach(language C CXX)
  set(CMAKE_${language}_COMPILER_TARGET wasm32-wasi)
  # 128-bit vectors, which every browser has had since 2023. Atomics, older ones' too, so that the modules with one thread and with
  # several are linked from the same objects. Nothing is thrown: the core returns its errors.
  # The header says why.
  set(CMAKE_${language}_FLAGS_INIT "-msimd128 -mbulk-memory -mnontrapping-fptoint -matomics -fno-exceptions \
-include ${CMAKE_CURRENT_LIST_DIR}/web/errno.h")
endforeach()
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_AR llvm-ar-19)
set(CMAKE_RANLIB llvm-ranlib-19)
# Nothing asks an object for its type, so that no names of types are there either.
set(CMAKE_CXX_FLAGS_INIT "${CMAKE_CXX_FLAGS_INIT} -fno-rtti -DPCRE2_STATIC -DUTF8PROC_STATIC")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)  # a program of ours is a module without main()
set(CMAKE_FIND_ROOT_PATH ${DOPPLER_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(ENV{PKG_CONFIG_LIBDIR} ${DOPPLER_SYSROOT}/lib/pkgconfig:${DOPPLER_SYSROOT}/share/pkgconfig)
