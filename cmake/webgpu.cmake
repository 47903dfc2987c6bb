# The imported target Doppler::webgpu: wgpu-native, or a library of the user's own in a folder of the same shape.
# Both <webgpu/webgpu.h> (the header's own advice) and "webgpu.h" find the header.
set(DOPPLER_WEBGPU_ROOT ${PROJECT_SOURCE_DIR}/.deps/wgpu-native-29.0.1.1 CACHE PATH
    "Folder with lib/libwgpu_native.so, include/webgpu/webgpu.h and include/webgpu/wgpu.h")
foreach(file lib/libwgpu_native.so include/webgpu/webgpu.h include/webgpu/wgpu.h)
  if(NOT EXISTS ${DOPPLER_WEBGPU_ROOT}/${file})
    message(FATAL_ERROR "The WebGPU library's file ${DOPPLER_WEBGPU_ROOT}/${file} is missing. Run "
            "scripts/install_webgpu.sh, set DOPPLER_WEBGPU_ROOT, or build without GPU (-DDOPPLER_GPU=OFF).")
  endif()
endforeach()
if(DOPPLER_WEB)  # the page is the library: src/backend/gpu/web
  add_library(Doppler::webgpu INTERFACE IMPORTED GLOBAL)
  set_target_properties(Doppler::webgpu PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${DOPPLER_WEBGPU_ROOT}/include;${DOPPLER_WEBGPU_ROOT}/include/webgpu")
  return()
endif()
add_library(Doppler::webgpu SHARED IMPORTED GLOBAL)
set_target_properties(Doppler::webgpu PROPERTIES
  IMPORTED_LOCATION ${DOPPLER_WEBGPU_ROOT}/lib/libwgpu_native.so
  IMPORTED_NO_SONAME TRUE
  INTERFACE_INCLUDE_DIRECTORIES "${DOPPLER_WEBGPU_ROOT}/include;${DOPPLER_WEBGPU_ROOT}/include/webgpu")

# A copy lies beside the program, one folder above tests and examples, so that a build folder that was moved still runs.
configure_file(${DOPPLER_WEBGPU_ROOT}/lib/libwgpu_native.so ${PROJECT_BINARY_DIR}/libwgpu_native.so COPYONLY)
list(APPEND CMAKE_BUILD_RPATH $ORIGIN/tensor-cores $ORIGIN/../tensor-cores $ORIGIN $ORIGIN/..)

# providers/tensor-cores, where scripts/install_webgpu.sh --tensor-cores has built it: a library of the same name and functions
# in a folder of its own, where programs look first. They run without it, and without being linked again.
set(DOPPLER_TENSOR_CORES_LIBRARY ${PROJECT_SOURCE_DIR}/.deps/tensor-cores-29.0.4/lib/libwgpu_native.so CACHE FILEPATH
    "WebGPU library with tensor cores; the program takes it where the file exists")
if(EXISTS ${DOPPLER_TENSOR_CORES_LIBRARY})
  configure_file(${DOPPLER_TENSOR_CORES_LIBRARY} ${PROJECT_BINARY_DIR}/tensor-cores/libwgpu_native.so COPYONLY)
else()
  file(REMOVE_RECURSE ${PROJECT_BINARY_DIR}/tensor-cores)
endif()
