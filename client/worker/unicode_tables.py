# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_tables.c: letters and numbers of Unicode 16, which tokenizers 0.23 has.

usage: python3 unicode_tables.py >unicode_tables.c, with PyPI's unicodedata2==16.0.0
"""
import sys

import unicodedata2 as unicodedata

WIDTH = 100


def ranges(kind):
    first = None
    for c in range(sys.maxunicode + 2):
        has = c <= sys.maxunicode and unicodedata.category(chr(c))[0] == kind
        if has and first is None:
            first = c
        elif not has and first is not None:
            yield first, c - 1
            first = None


def table(name, kind):
    items = [f"{{{first:#x}, {last:#x}}}" for first, last in ranges(kind)]
    print(f"const struct unicode_range unicode_{name}s[] = {{")
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > WIDTH:
            print(line)
            line = "   "
        line += f" {item},"
    print(f"{line}\n}};")
    print(f"const size_t unicode_{name}_ranges = sizeof(unicode_{name}s) / sizeof(unicode_{name}s[0]);")


print(f"""/* SPDX-License-Identifier: Apache-2.0 */
/* Written by unicode_tables.py: the general categories L and N of Unicode {unicodedata.unidata_version}. */
/* clang-format off */
#include "unicode.h"
""")
table("letter", "L")
print()
table("number", "N")
