# SPDX-License-Identifier: Apache-2.0
# Debian packages: `cmake --preset deb && cmake --build build/deb && cpack --config
# build/deb/CPackConfig.cmake`. Each component of the installation is a package; packaging/README.md
# says what is in which.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kvcache)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_CONTACT "${KVC_MAINTAINER}")
set(CPACK_PACKAGE_VENDOR "kvcache-daemon")
set(CPACK_PACKAGE_HOMEPAGE_URL "")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_BINARY_DIR}/packages")
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_SOURCE_DIR}/packaging/compress.cmake")
# Under DESTDIR the prefix stays /usr, which the unit and the place of daemon.yaml go by.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_BINARY_DIR}/bin")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENTS_ALL daemon library development ctl bench)

get_target_property(soversion kvcache SOVERSION)
set(library "libkvcache${soversion}")
set(same "(= ${PROJECT_VERSION})")

# kvc_package(COMPONENT NAME SECTION SUMMARY TEXT)
function(kvc_package component name section summary text)
  string(TOUPPER "${component}" C)
  foreach(fact "PACKAGE_NAME;${name}" "PACKAGE_SECTION;${section}")
    list(POP_FRONT fact key)
    set(CPACK_DEBIAN_${C}_${key} "${fact}" PARENT_SCOPE)
  endforeach()
  set(CPACK_COMPONENT_${C}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  # What policy wants of every package, and an installation from the source does not need.
  set(doc "${CMAKE_BINARY_DIR}/packaging/${name}")
  file(MAKE_DIRECTORY "${doc}")
  configure_file("${CMAKE_SOURCE_DIR}/packaging/copyright" "${doc}/copyright" COPYONLY)
  configure_file("${CMAKE_SOURCE_DIR}/packaging/changelog.in" "${doc}/changelog" @ONLY)
  execute_process(COMMAND gzip -9nf "${doc}/changelog" COMMAND_ERROR_IS_FATAL ANY)
  install(FILES "${doc}/copyright" "${doc}/changelog.gz" DESTINATION "share/doc/${name}"
          COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

kvc_package(daemon kvcache-daemon net "KV cache of LLM inference on one node"
  "Owns the KV cache of the inference engines of a machine, in GPU memory, host\nmemory and storage, and serves it to all of them.\n.\nThe service is neither enabled nor started when it is installed: it takes\nmemory. See /etc/kvcache/daemon.yaml, then: systemctl enable --now kvcache.")
kvc_package(library ${library} libs "client library of kvcache-daemon"
  "Lets inference engines look up, read and store KV blocks of a\nkvcache-daemon on the same machine.")
kvc_package(development libkvcache-dev libdevel "client library of kvcache-daemon (headers)"
  "Headers, pkg-config file and CMake package of libkvcache.")
kvc_package(ctl kvcachectl admin "asks and steers kvcache-daemon"
  "Shows what a kvcache-daemon holds, evicts, pins, drains, exports, and says\nhow large the KV cache of a model is.")
kvc_package(bench kvcache-bench misc "measures kvcache-daemon"
  "kvcachebench measures a kvcache-daemon and replays traces. kvcache-worker is\na reference engine for a CPU, where it was built.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${CMAKE_SOURCE_DIR}/packaging/triggers")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library} ${same}")
set(CPACK_DEBIAN_DAEMON_PACKAGE_DEPENDS
    "systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles")
set(CPACK_DEBIAN_DAEMON_PACKAGE_RECOMMENDS "kvcachectl")
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA
    "${CMAKE_SOURCE_DIR}/packaging/postinst;${CMAKE_SOURCE_DIR}/packaging/prerm;${CMAKE_SOURCE_DIR}/packaging/postrm;${CMAKE_SOURCE_DIR}/packaging/conffiles")
include(CPack)
