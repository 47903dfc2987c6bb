# What Debian wants in places and shapes of its own; CPack runs this on the files that were installed for the package.
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
set(doc ${share}/doc/doppler)
file(MAKE_DIRECTORY ${share}/zsh/vendor-completions)
file(RENAME ${share}/zsh/site-functions/_doppler ${share}/zsh/vendor-completions/_doppler)
file(REMOVE_RECURSE ${share}/zsh/site-functions)
file(REMOVE ${doc}/LICENSE)  # Debian has the text; the file copyright names it
file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/debian_copyright ${doc}/copyright)
file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/../CHANGELOG.md ${doc}/changelog)
file(CHMOD ${doc}/copyright ${doc}/changelog PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
execute_process(COMMAND gzip -9nf ${doc}/changelog ${share}/man/man1/doppler.1 COMMAND_ERROR_IS_FATAL ANY)
