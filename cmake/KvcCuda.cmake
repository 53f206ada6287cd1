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
    set(KVC_HAVE_CUDA ON)
  elseif(KVC_CUDA STREQUAL "ON")
    message(FATAL_ERROR
      "KVC_CUDA=ON, but no CUDA compiler was found. Put nvcc on PATH, or give "
      "-DCMAKE_CUDA_COMPILER=/path/to/nvcc, or configure with -DKVC_CUDA=AUTO or OFF "
      "(the daemon then has no GPU kernels; their CPU twins are built always).")
  endif()
endif()
message(STATUS "CUDA kernels: ${KVC_HAVE_CUDA} (KVC_CUDA=${KVC_CUDA})")
