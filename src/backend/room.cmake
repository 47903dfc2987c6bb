target_link_libraries(doppler_backend PRIVATE PkgConfig::HWY)
# Multiplications and additions are joined only where the source says so, so that a value's result does not depend on how
# the compiler arranged the loop around it. Kernels get -O3, because arrays of vectors must become registers.
file(GLOB DOPPLER_CPU_FILES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cpu/*.cpp)
file(GLOB DOPPLER_KERNEL_FILES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cpu/*_kernels.cpp
     ${PROJECT_SOURCE_DIR}/src/backend/cpu/panel/*.cpp)
list(REMOVE_ITEM DOPPLER_CPU_FILES ${DOPPLER_KERNEL_FILES})
set(DOPPLER_CPU_OPTIONS "-ffp-contract=off")
if(DOPPLER_SANITIZE)  # what computes on the CPU is optimised there, too, and the oracle with it
  list(APPEND DOPPLER_CPU_OPTIONS -O1)
  file(GLOB DOPPLER_ORACLE_FILES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/reference/*.cpp)
  set_source_files_properties(${DOPPLER_ORACLE_FILES} PROPERTIES COMPILE_OPTIONS -O1)
endif()
set_source_files_properties(${DOPPLER_CPU_FILES} PROPERTIES COMPILE_OPTIONS "${DOPPLER_CPU_OPTIONS}")
# AddressSanitizer sees every wrong access; of UndefinedBehaviorSanitizer's checks those of each pointer are left out, which
# make unrolled kernels so large that they take minutes to compile.
set(DOPPLER_KERNEL_OPTIONS "${DOPPLER_CPU_OPTIONS};$<$<CONFIG:Release>:-O3>")
if(DOPPLER_SANITIZE)
  list(APPEND DOPPLER_KERNEL_OPTIONS -fno-sanitize=null,object-size,pointer-overflow)
endif()
set_source_files_properties(${DOPPLER_KERNEL_FILES} PROPERTIES COMPILE_OPTIONS "${DOPPLER_KERNEL_OPTIONS}")
# The portable ones, the most to compile, say themselves what is unrolled: with -O2 as fast, to the bit the same.
string(REPLACE "$<$<CONFIG:Release>:-O3>" "" DOPPLER_PORTABLE_OPTIONS "${DOPPLER_KERNEL_OPTIONS}")
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/backend/cpu/panel/kernels_portable.cpp PROPERTIES
                            COMPILE_OPTIONS "${DOPPLER_PORTABLE_OPTIONS}")

# The GPU part: the WebGPU library stays behind it, DOPPLER_GPU=1 tells every room above that it is there.
if(DOPPLER_GPU)
  include(embed_texts)
  # One provider of webgpu.h: the page's, by imports of the module, or wgpu-native.
  get_target_property(DOPPLER_BACKEND_FILES doppler_backend SOURCES)
  if(DOPPLER_WEB)
    list(FILTER DOPPLER_BACKEND_FILES EXCLUDE REGEX "/src/backend/gpu/provider.cpp$")
  else()
    list(FILTER DOPPLER_BACKEND_FILES EXCLUDE REGEX "/src/backend/gpu/web/")
  endif()
  set_target_properties(doppler_backend PROPERTIES SOURCES "${DOPPLER_BACKEND_FILES}")
  target_link_libraries(doppler_backend PRIVATE Doppler::webgpu)
  target_compile_definitions(doppler_backend PUBLIC DOPPLER_GPU=1)
  set(DOPPLER_SHADER_TEXTS "")
  if(DOPPLER_WEB)  # which is downloaded: a third of the texts is for their readers
    set(DOPPLER_SHADER_TEXTS LEAN)
  endif()
  doppler_embed_texts(doppler_backend ${PROJECT_SOURCE_DIR}/src/backend/gpu/shaders wgsl backend/gpu/embedded_shaders.h EmbeddedShader
                      doppler::gpu::embedded_shaders ${DOPPLER_SHADER_TEXTS})
else()
  get_target_property(DOPPLER_BACKEND_FILES doppler_backend SOURCES)
  list(FILTER DOPPLER_BACKEND_FILES EXCLUDE REGEX "/src/backend/gpu/")
  set_target_properties(doppler_backend PROPERTIES SOURCES "${DOPPLER_BACKEND_FILES}")
endif()
