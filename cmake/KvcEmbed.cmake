# SPDX-License-Identifier: Apache-2.0
# A script: the bytes of a file as a C source.
#
#   cmake -DFILE=in -DOUTPUT=out.c -DNAME=symbol -P KvcEmbed.cmake
#
# Defines `const unsigned char symbol[]`, aligned to 16 bytes, and `const size_t symbol_bytes`. One
# zero byte follows these, so that text is a string.
foreach(argument FILE OUTPUT NAME)
  if(NOT ${argument})
    message(FATAL_ERROR "KvcEmbed.cmake: needs -D${argument}=...")
  endif()
endforeach()

file(READ "${FILE}" hex HEX)
if(hex STREQUAL "")
  message(FATAL_ERROR "KvcEmbed.cmake: ${FILE} is empty")
endif()
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE "${OUTPUT}"
  "#include <stddef.h>\n"
  "extern const unsigned char ${NAME}[];\n"
  "extern const size_t ${NAME}_bytes;\n"
  "__attribute__((aligned(16))) const unsigned char ${NAME}[] = {\n${hex}0x00};\n"
  "const size_t ${NAME}_bytes = sizeof ${NAME} - 1;\n")
