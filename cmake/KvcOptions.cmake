# SPDX-License-Identifier: Apache-2.0
# Options and the flags that every C file of the tree is compiled with.

set(KVC_CUDA AUTO CACHE STRING "CUDA kernels: AUTO (when nvcc is found), ON (required), OFF")
set_property(CACHE KVC_CUDA PROPERTY STRINGS AUTO ON OFF)
set(KVC_SANITIZE "" CACHE STRING "value of -fsanitize=, e.g. address,undefined or thread")
option(KVC_COVERAGE "count which lines run (gcc; see tests/coverage.sh)" OFF)
set(KVC_MAINTAINER "kvcache-daemon maintainers <maintainers@localhost>" CACHE STRING "of the Debian packages")
option(KVC_TESTS "build the tests (needs Check)" ON)

if(NOT KVC_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KVC_CUDA is '${KVC_CUDA}'; it must be AUTO, ON or OFF")
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
# Every static library may end up in libkvcache.so.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O3 -g -DNDEBUG")
# Functions and lines, which reports name; a debugger's tables of variables are a third of the work.
set(CMAKE_C_FLAGS_DEBUG "-O1 -g1")

# Empty, not 1: a file that defines it by itself then redefines it identically.
add_compile_definitions($<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=>)

set(KVC_WARNINGS
    -Wall -Wextra -Werror
    -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
    -Wvla -Wwrite-strings -Wundef -Wformat=2 -Wimplicit-fallthrough -Wnested-externs
    -Wredundant-decls -Winit-self -Wfloat-equal)
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${KVC_WARNINGS}>")
add_compile_options("$<$<COMPILE_LANGUAGE:C>:-fno-common;-fno-omit-frame-pointer>")
add_link_options(-Wl,--as-needed -Wl,-z,relro -Wl,-z,now)

if(KVC_SANITIZE)
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:C>:-fsanitize=${KVC_SANITIZE};-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${KVC_SANITIZE})
  # gcc 12's ThreadSanitizer guesses how large a thread's memory of a library is, and at times reads
  # what is no size ("failed to allocate 0x1fe... bytes"): here it is asked for none.
  if(KVC_SANITIZE MATCHES "thread")
    add_compile_options("$<$<COMPILE_LANGUAGE:C>:-ftls-model=initial-exec>")
  endif()
else()
  add_compile_options("$<$<COMPILE_LANGUAGE:C>:-fstack-protector-strong>")
  add_compile_definitions("$<$<AND:$<COMPILE_LANGUAGE:C>,$<CONFIG:RelWithDebInfo>>:_FORTIFY_SOURCE=2>")
endif()

# Counts are written when a process ends, so its own ways to end without exit() write them first.
if(KVC_COVERAGE)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
    message(FATAL_ERROR "KVC_COVERAGE needs gcc: cmake --preset coverage")
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:C>:--coverage;-O0;-fprofile-update=atomic>")
  add_link_options(--coverage)
  add_library(kvc_coverage_flush STATIC "${CMAKE_SOURCE_DIR}/tests/coverage/flush.c")
  foreach(symbol _exit _Exit abort)
    add_link_options("LINKER:--wrap=${symbol},--undefined=__wrap_${symbol}")
  endforeach()
  link_libraries($<BUILD_INTERFACE:kvc_coverage_flush>)
endif()
