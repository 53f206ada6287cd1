# SPDX-License-Identifier: Apache-2.0
# CMakeLists.txt of a project of somebody else's; install.sh copies it out of the tree.
cmake_minimum_required(VERSION 3.25)
project(out-of-tree LANGUAGES C)
find_package(kvcache @WANTED@ CONFIG REQUIRED)
add_executable(program program.c)
target_link_libraries(program PRIVATE kvcache::kvcache)
