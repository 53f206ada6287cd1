# SPDX-License-Identifier: Apache-2.0
# What cpack runs before it makes packages: man pages are compressed, as policy wants them.
file(GLOB_RECURSE pages "${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/man/*.[1-8]")
if(pages)
  execute_process(COMMAND gzip -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
