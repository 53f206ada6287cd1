# SPDX-License-Identifier: Apache-2.0
# ctest registration. Labels: unit golden model sim e2e kill crash sweep gate gpu long, and beside them
# uring epoll twin fuzz single decides bench ratios; tests/README.md says which build runs what.
# tests/run.sh leaves out long and gpu.

# What every test runs with. Check forks each test case, so that a crash is one failed case.
set(KVC_TEST_ENV
    "CK_FORK=yes"
    "CK_DEFAULT_TIMEOUT=120"
    "ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:strict_string_checks=1:detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1"
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp"
    "KVC_BIN_DIR=${CMAKE_BINARY_DIR}/bin"
    "KVC_SOURCE_DIR=${CMAKE_SOURCE_DIR}")
# Hundreds of test programs are linked: gold takes a third of the time that GNU ld takes.
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=gold KVC_HAVE_GOLD)

# kvc_unit_test(NAME n SOURCES file... [LIBS target...] [LABELS label...] [TIMEOUT seconds]
#               [ARGS arg...] [ENV NAME=VALUE...] [SERIAL])
#
# A program bin/<n> linked with Check and a ctest test <n> that runs it in a directory of its own.
# LABELS defaults to unit, TIMEOUT to 300. Exit code 77 means skipped; print the reason on a line
# that begins with "SKIP:". Cases: tests/check/cases.h. SERIAL: never at the same time as another test.
# Builds with ThreadSanitizer leave out what has the label single, decides or ratios, and what has none
# of unit, e2e and kill.
function(kvc_unit_test)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "SERIAL" "NAME;TIMEOUT" "SOURCES;LIBS;LABELS;ARGS;ENV")
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_NAME OR NOT ARG_SOURCES)
    message(FATAL_ERROR "kvc_unit_test: needs NAME and SOURCES; not understood: "
                        "'${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  # Half of what a build costs is to optimise assertions; what they assert of is optimised as ever.
  target_compile_options(${ARG_NAME} PRIVATE $<IF:$<CONFIG:Debug>,-O0,-O1>)
  if(KVC_HAVE_GOLD)
    target_link_options(${ARG_NAME} PRIVATE -fuse-ld=gold)
  endif()
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_LIBS} kvc_check Threads::Threads)
  # ThreadSanitizer has something to say of threads, and of each set of threads once (.ci/run).
  set(labels ";${ARG_LABELS};${KVC_TEST_LABEL};")
  if("${KVC_SANITIZE}" MATCHES "thread" AND
     (labels MATCHES ";(single|decides|ratios);" OR (ARG_LABELS AND NOT labels MATCHES ";(unit|e2e|kill);")))
    set_target_properties(${ARG_NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  kvc_add_test(NAME ${ARG_NAME} COMMAND $<TARGET_FILE:${ARG_NAME}> ${ARG_ARGS}
               LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT} ENV ${ARG_ENV} SERIAL ${ARG_SERIAL})
endfunction()

# kvc_add_test(NAME n COMMAND cmd arg... [LABELS label...] [TIMEOUT seconds] [ENV NAME=VALUE...]
#              [SERIAL ON|OFF])
# The same registration for a program or script that exists already. KVC_TEST_LABEL, where a directory
# sets it, is a label of all its tests beside theirs.
function(kvc_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;TIMEOUT;SERIAL" "COMMAND;LABELS;ENV")
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  list(APPEND ARG_LABELS ${KVC_TEST_LABEL})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(dir "${CMAKE_BINARY_DIR}/test-run/${ARG_NAME}")
  file(MAKE_DIRECTORY "${dir}")
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY "${dir}")
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS "${ARG_LABELS}"
    TIMEOUT ${ARG_TIMEOUT}
    COST ${ARG_TIMEOUT} # what may take longest begins first: else it runs alone in the end
    SKIP_RETURN_CODE 77
    ENVIRONMENT "${KVC_TEST_ENV};${ARG_ENV}")
  if(ARG_SERIAL)
    set_tests_properties(${ARG_NAME} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# kvc_fake_cuda_test(<name> [what kvc_unit_test takes])
#
# <name>.c of the calling directory, which runs on the fake CUDA driver (tests/gpu): it finds that
# one as a program finds the driver. Where the build has no CUDA the program is there to say so.
function(kvc_fake_cuda_test name)
  set(dir "${CMAKE_BINARY_DIR}/fake-cuda")
  kvc_unit_test(NAME ${name} SOURCES ${name}.c LIBS kvc_io ENV "LD_LIBRARY_PATH=${dir}" ${ARGN})
  if(KVC_HAVE_CUDA)
    target_compile_definitions(${name} PRIVATE FAKE_CUDA_DIR="${dir}")
    target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests/gpu")
    target_include_directories(${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    add_dependencies(${name} kvc_fake_cuda)
  endif()
endfunction()
