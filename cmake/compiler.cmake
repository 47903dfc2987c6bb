# One place for language, warnings and sanitizers.
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# Every source is compiled once, for the program, the archive and the shared library, which shows DOPPLER_API only. g++ of
# Debian and Ubuntu makes position-independent programs anyway, so this costs nothing there.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
# -O1 keeps the sanitizer run inside CI's time; -g1 keeps line numbers in reports.
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")

add_library(doppler_options INTERFACE)
# Designated initialisers that leave out members with defaults are how options are written here.
target_compile_options(doppler_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                       $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
if(DOPPLER_WERROR)
  target_compile_options(doppler_options INTERFACE -Werror)
endif()
if(DOPPLER_SANITIZE)
  target_compile_options(doppler_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_link_options(doppler_options INTERFACE -fsanitize=address,undefined)
endif()
if(DOPPLER_SANITIZE_THREADS)
  target_compile_options(doppler_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(doppler_options INTERFACE -fsanitize=thread)
endif()
# What makes compiling the sanitized build cheaper, as an option of a target's own: measured with clang 19, code that no
# fuzz target runs needs no coverage counters (a fifth of the time), and the front ends' and tests' code, which computes
# little and instantiates much, no optimiser (half of the time).
function(doppler_fuzzed target)
  if(DOPPLER_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()
function(doppler_compile_fast target)
  if(DOPPLER_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

find_program(DOPPLER_CCACHE ccache)
if(DOPPLER_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DOPPLER_CCACHE})
endif()

# Precompiled headers take a third off clang's sanitized build from nothing (g++ gains 5%), and hide missing includes. A
# compiler cache does better with plain files, so whoever works on the code has the cache, and CI has these.
if(NOT DOPPLER_CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(DOPPLER_PRECOMPILE_DEFAULT ON)
else()
  set(DOPPLER_PRECOMPILE_DEFAULT OFF)
endif()
option(DOPPLER_PRECOMPILE "Parse common headers once for each target" ${DOPPLER_PRECOMPILE_DEFAULT})
function(doppler_precompile target header)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(DOPPLER_PRECOMPILE AND count GREATER 3)  # parsing them costs as much as it saves in two files
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled/${header}.h)
  endif()
endfunction()
