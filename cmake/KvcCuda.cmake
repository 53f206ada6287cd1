# SPDX-License-Identifier: Apache-2.0
# Sets KVC_HAVE_CUDA and enables the CUDA language, as KVC_CUDA says.

set(KVC_HAVE_CUDA OFF)
if(NOT KVC_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # sm_80 (A100) and sm_90 (H100, H200) code, and PTX of the newest for what comes after.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.0)
      # For its headers: the daemon finds the driver at run time and links nothing of CUDA.
      find_package(CUDAToolkit REQUIRED)
      set(KVC_HAVE_CUDA ON)
    elseif(KVC_CUDA STREQUAL "ON")
      message(FATAL_ERROR "KVC_CUDA=ON, but ${CMAKE_CUDA_COMPILER} is CUDA "
        "${CMAKE_CUDA_COMPILER_VERSION}; 12.0 or later is needed")
    endif()
  elseif(KVC_CUDA STREQUAL "ON")
    message(FATAL_ERROR
      "KVC_CUDA=ON, but no CUDA compiler was found. Put nvcc on PATH, or give "
      "-DCMAKE_CUDA_COMPILER=/path/to/nvcc, or configure with -DKVC_CUDA=AUTO or OFF "
      "(the daemon then has no GPU kernels; their CPU twins are built always).")
  endif()
endif()
message(STATUS "CUDA kernels: ${KVC_HAVE_CUDA} (KVC_CUDA=${KVC_CUDA})")

# kvc_cuda_arch_flags(<ret_var>): CMAKE_CUDA_ARCHITECTURES as options of nvcc.
function(kvc_cuda_arch_flags ret_var)
  set(flags "")
  foreach(arch IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(arch MATCHES "^(native|all|all-major)$")
      list(APPEND flags "-arch=${arch}")
    elseif(arch MATCHES "^([0-9]+[af]?)-real$")
      list(APPEND flags -gencode "arch=compute_${CMAKE_MATCH_1},code=sm_${CMAKE_MATCH_1}")
    elseif(arch MATCHES "^([0-9]+[af]?)-virtual$")
      list(APPEND flags -gencode "arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1}")
    elseif(arch MATCHES "^[0-9]+[af]?$")
      list(APPEND flags -gencode "arch=compute_${arch},code=[sm_${arch},compute_${arch}]")
    else()
      message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES has '${arch}'; understood are 90, 90-real, "
                          "90-virtual, native, all, all-major")
    endif()
  endforeach()
  set(${ret_var} "${flags}" PARENT_SCOPE)
endfunction()

# kvc_cuda__embed(<target> <symbol> <file>): the bytes of <file> as <symbol>[] of <target>.
function(kvc_cuda__embed target symbol file)
  add_custom_command(OUTPUT "${file}.c"
    COMMAND "${CMAKE_COMMAND}" "-DFILE=${file}" "-DOUTPUT=${file}.c" "-DNAME=${symbol}"
            -P "${CMAKE_SOURCE_DIR}/cmake/KvcEmbed.cmake"
    DEPENDS "${file}" "${CMAKE_SOURCE_DIR}/cmake/KvcEmbed.cmake"
    VERBATIM)
  target_sources(${target} PRIVATE "${file}.c")
endfunction()

# kvc_cuda_image(<target> <symbol>_image <file.cu> [FLAGS flag...] [DEPENDS file...])
#
# Adds to <target> the device code of <file.cu>, one image for all architectures, as the bytes
# <symbol>_image[] and their count <symbol>_image_bytes (size_t); and as PTX <symbol>_ptx[] of the
# oldest version that has sm_80 (7.0, CUDA 11.0), which any driver compiles: it takes no image of a
# newer CUDA than its own. A hint that came with 8.3 is left out. For cuModuleLoadData(); links
# nothing. KVC_PTX has the files, for tests.
function(kvc_cuda_image target symbol source)
  cmake_parse_arguments(PARSE_ARGV 3 ARG "" "" "FLAGS;DEPENDS")
  string(REGEX REPLACE "_image$" "_ptx" ptx_symbol "${symbol}")
  set(image "${CMAKE_CURRENT_BINARY_DIR}/${symbol}.fatbin")
  set(ptx "${CMAKE_CURRENT_BINARY_DIR}/${ptx_symbol}.ptx")
  kvc_cuda_arch_flags(arch_flags)
  set(host_flags "")
  if(CMAKE_CUDA_HOST_COMPILER)
    set(host_flags "-ccbin=${CMAKE_CUDA_HOST_COMPILER}")
  endif()
  set(nvcc "${CMAKE_CUDA_COMPILER}" -O3 -std=c++17 -DKVC_HAVE_CUDA=1
      "-I${CMAKE_SOURCE_DIR}/include" ${ARG_FLAGS} ${host_flags})
  add_custom_command(OUTPUT "${image}"
    COMMAND ${nvcc} -fatbin ${arch_flags} -o "${image}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
    DEPENDS "${source}" ${ARG_DEPENDS}
    COMMENT "Building CUDA image ${symbol}"
    VERBATIM)
  add_custom_command(OUTPUT "${ptx}"
    COMMAND ${nvcc} -ptx -arch=compute_80 -o "${ptx}.new" "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
    COMMAND sed -e "s/^\\.version .*/.version 7.0/" -e "/\\.pragma \"used_bytes_mask/d"
            "${ptx}.new" > "${ptx}"
    DEPENDS "${source}" ${ARG_DEPENDS}
    COMMENT "Building PTX ${ptx_symbol}"
    VERBATIM)
  kvc_cuda__embed(${target} ${symbol} "${image}")
  kvc_cuda__embed(${target} ${ptx_symbol} "${ptx}")
  set_property(GLOBAL APPEND PROPERTY KVC_PTX "${ptx}")
endfunction()
