# cmake --install: program, headers, libraries, and what lets CMake, pkg-config, shells and man find them. Paths are relative to
# the prefix and to each other, so that an installed prefix may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(private_dir ${CMAKE_INSTALL_LIBDIR}/doppler)  # libraries of ours that no other program should find by name
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Doppler)
set(output ${PROJECT_BINARY_DIR}/install)

file(RELATIVE_PATH to_private /${CMAKE_INSTALL_BINDIR} /${private_dir})
set_target_properties(doppler PROPERTIES INSTALL_RPATH
  "$ORIGIN/${to_private}/tensor-cores;$ORIGIN/${to_private}")
set_target_properties(doppler_shared PROPERTIES INSTALL_RPATH "$ORIGIN/doppler/tensor-cores;$ORIGIN/doppler")
install(TARGETS doppler doppler_static doppler_shared)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/doppler DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(DOPPLER_GPU)
  install(PROGRAMS ${DOPPLER_WEBGPU_ROOT}/lib/libwgpu_native.so DESTINATION ${private_dir})
  if(EXISTS ${DOPPLER_TENSOR_CORES_LIBRARY})
    install(PROGRAMS ${DOPPLER_TENSOR_CORES_LIBRARY} DESTINATION ${private_dir}/tensor-cores)
  endif()
endif()

# CMake's package and pkg-config's.
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/DopplerConfig.cmake.in ${output}/DopplerConfig.cmake
                              INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${output}/DopplerConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${output}/DopplerConfig.cmake ${output}/DopplerConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/DopplerDependencies.cmake DESTINATION ${package_dir})
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(private_libs "-lstdc++ -lm -pthread")
if(DOPPLER_GPU)
  string(PREPEND private_libs "-L\${libdir}/doppler -Wl,-rpath,\${libdir}/doppler -lwgpu_native ")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/doppler.pc.in ${output}/doppler.pc @ONLY)
install(FILES ${output}/doppler.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# What the program says of itself: completions and a man page. A program for another machine does not run here.
if(NOT CMAKE_CROSSCOMPILING)
  set(texts ${output}/doppler.bash ${output}/_doppler ${output}/doppler.fish ${output}/doppler.1)
  add_custom_command(OUTPUT ${texts}
    COMMAND doppler completion bash > ${output}/doppler.bash
    COMMAND doppler completion zsh > ${output}/_doppler
    COMMAND doppler completion fish > ${output}/doppler.fish
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/man_page.sh $<TARGET_FILE:doppler> > ${output}/doppler.1
    DEPENDS doppler ${PROJECT_SOURCE_DIR}/scripts/man_page.sh VERBATIM COMMENT "Writing completions and the man page")
  install(FILES ${output}/doppler.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME doppler)
  install(FILES ${output}/_doppler DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${output}/doppler.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  install(FILES ${output}/doppler.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# What has to be built before it can be installed; measuring programs and examples need not be.
add_custom_target(doppler_installable ALL DEPENDS doppler doppler_static doppler_shared ${texts})
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

include(package)
