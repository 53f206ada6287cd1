# SPDX-License-Identifier: Apache-2.0
# What other projects find of libkvcache: a CMake package (find_package(kvcache), target
# kvcache::kvcache), a pkg-config file, documents. Both files name the installed prefix relative to
# themselves, so that it can be moved; only an absolute CMAKE_INSTALL_LIBDIR or _INCLUDEDIR is kept
# as it is. No static library is installed: it would need the static libraries of the other layers.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kvcache")
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# The loader of other programs finds the library only once its cache has it. A staged installation is
# somebody's package, which sees to that itself.
install(CODE "set(KVC_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")" COMPONENT development)
install(CODE [[
  if("$ENV{DESTDIR}" STREQUAL "")
    message(STATUS "Programs that link libkvcache.so find it after: ldconfig (as root, with"
            " ${CMAKE_INSTALL_PREFIX}/${KVC_LIBDIR} in /etc/ld.so.conf.d), or linked with"
            " -Wl,-rpath,${CMAKE_INSTALL_PREFIX}/${KVC_LIBDIR}")
  endif()]] COMPONENT development)

install(EXPORT kvcache NAMESPACE kvcache:: DESTINATION "${package_dir}" FILE kvcache-targets.cmake
        COMPONENT development)
configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/kvcache-config.cmake.in"
  "${CMAKE_BINARY_DIR}/package/kvcache-config.cmake" INSTALL_DESTINATION "${package_dir}")
# As the soname: before 1.0 a minor version may change everything.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file("${CMAKE_BINARY_DIR}/package/kvcache-config-version.cmake"
  COMPATIBILITY ${compatibility})
install(FILES "${CMAKE_BINARY_DIR}/package/kvcache-config.cmake"
              "${CMAKE_BINARY_DIR}/package/kvcache-config-version.cmake"
        DESTINATION "${package_dir}" COMPONENT development)

if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH up "/${pkgconfig_dir}" "/")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(pc_prefix "\${pcfiledir}/${up}")
endif()
foreach(name LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${name}}")
    set(pc_${name} "${CMAKE_INSTALL_${name}}")
  else()
    set(pc_${name} "\${prefix}/${CMAKE_INSTALL_${name}}")
  endif()
endforeach()
configure_file("${CMAKE_SOURCE_DIR}/cmake/kvcache.pc.in" "${CMAKE_BINARY_DIR}/package/kvcache.pc"
               @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/package/kvcache.pc" DESTINATION "${pkgconfig_dir}"
        COMPONENT development)

install(FILES "${CMAKE_SOURCE_DIR}/README.md" "${CMAKE_SOURCE_DIR}/LICENSE"
              "${CMAKE_SOURCE_DIR}/NOTICE" "${CMAKE_SOURCE_DIR}/include/kvcache/PROTOCOL.md"
        DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/kvcache" COMPONENT development)
