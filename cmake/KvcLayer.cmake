# SPDX-License-Identifier: Apache-2.0
# One CMake library per layer. A layer's include path is its own directory and what its DEPS
# export, nothing else, so that an include of a layer above does not compile.

# kvc_layer(<target> [DEPS layer...] [FOREIGN target...] [EXCLUDE file...])
#
# Makes a static library of the *.c files of the current directory (not of its subdirectories),
# or an interface library while there are none.
#   DEPS     layers whose headers this one and its users may include
#   FOREIGN  libraries behind this layer's adapters: linked, their headers not exported
#   EXCLUDE  file names in this directory that belong to another target
function(kvc_layer target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "DEPS;FOREIGN;EXCLUDE")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "kvc_layer(${target}): unknown argument '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.c")
  foreach(name IN LISTS ARG_EXCLUDE)
    list(REMOVE_ITEM sources "${CMAKE_CURRENT_SOURCE_DIR}/${name}")
  endforeach()
  if(sources)
    add_library(${target} STATIC ${sources})
    target_include_directories(${target} PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
    target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_FOREIGN})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}")
    target_link_libraries(${target} INTERFACE ${ARG_DEPS})
  endif()
  set_property(GLOBAL APPEND PROPERTY KVC_LAYERS ${target})
endfunction()

# kvc_includes_of(<target> <ret_var>): a generator expression, the include directories with which
# the sources of <target> are compiled.
function(kvc_includes_of target ret_var)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    set(property INTERFACE_INCLUDE_DIRECTORIES)
  else()
    set(property INCLUDE_DIRECTORIES)
  endif()
  set(${ret_var} "$<REMOVE_DUPLICATES:$<TARGET_PROPERTY:${target},${property}>>" PARENT_SCOPE)
endfunction()
