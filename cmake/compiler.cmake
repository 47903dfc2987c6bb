# One place for language, warnings and sanitizers.
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# Every source is compiled once, for the program, the archive and the shared library, which shows DOPPLER_API only. g++ of
# Debian and Ubuntu makes position-independent programs anyway, so this costs nothing there.
if(NOT DOPPLER_WEB)  # whose module has one place
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
endif()
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
if(DOPPLER_WEB)  # which is downloaded; kernels have options of their own
  set(CMAKE_CXX_FLAGS_RELEASE "-Os")
endif()
# -O1 keeps the sanitizer run inside CI's time; -g1 keeps line numbers in reports.
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")

add_library(doppler_options INTERFACE)
# Designated initialisers that leave out members with defaults are how options are written here.
# Files that are compiled together may shadow each other's global names: nothing that -Wshadow should warn of. g++ can warn of local ones
# alone.
set(united $<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>)
target_compile_options(doppler_options INTERFACE -Wall -Wextra -Wpedantic $<$<NOT:${united}>:-Wshadow>
                       $<$<AND:${united},$<CXX_COMPILER_ID:GNU>>:-Wshadow=local>
                       $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -Wno-missing-field-initializers)
# g++ 12's library keeps what its stable sorts call for deprecated, and clang says so wherever they are used.
target_compile_options(doppler_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>)
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
# Code that no fuzz target runs needs no coverage counters: a fifth of compiling it, with clang 19.
function(doppler_fuzzed target)
  if(DOPPLER_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()
# The sanitized build, which CI makes anew each time, without the optimiser: a half to a third of the time to compile. For code that waits
# for others to compute; searches for faults, say, take three times as long so (clang 19).
function(doppler_unoptimised_for_sanitizers target)
  if(DOPPLER_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()
# Released code that reads and decides more than it computes gets -O1, a sixth cheaper to compile: what computes for it lies in other rooms.
# A module for pages is downloaded: there it gets what makes it smallest.
function(doppler_compile_lightly target)
  if(DOPPLER_WEB)
    doppler_compile_small(${target})
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()
function(doppler_compile_small target)
  if(DOPPLER_WEB)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Oz>)
  endif()
endfunction()

# A compiler cache, which does best with each file by itself, is for those who work on the code. Without one a build is mostly
# the first and only, and it counts what that costs: scripts/build_cost.
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(DOPPLER_CCACHE ccache)
  if(DOPPLER_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${DOPPLER_CCACHE})
  endif()
endif()
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
  set(DOPPLER_UNITY_DEFAULT OFF)
else()
  set(DOPPLER_UNITY_DEFAULT ON)
endif()

# More than half of compiling a file is its headers, and what they instantiate. Sixteen files together leave enough pieces for
# many cores. It asks that names in unnamed namespaces differ within a folder. CMake leaves out files with options of their own.
option(DOPPLER_UNITY "Compile the files of a folder together" ${DOPPLER_UNITY_DEFAULT})
set(DOPPLER_UNITY_FILES 16)
# Folders whose files stay by themselves: encoders, whose loops must not change with their neighbours, and the oracle.
set(DOPPLER_COMPILED_ALONE quant reference)
function(doppler_unite target)
  if(NOT DOPPLER_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "^${PROJECT_SOURCE_DIR}/.*\\.cpp$" OR source MATCHES "^${PROJECT_BINARY_DIR}/")
      continue()
    endif()
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME folder)
    if(folder IN_LIST DOPPLER_COMPILED_ALONE)
      continue()
    endif()
    math(EXPR count_${folder} "0${count_${folder}} + 1")
    math(EXPR part "(${count_${folder}} - 1) / ${DOPPLER_UNITY_FILES}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${part})
  endforeach()
endfunction()
