#!/usr/bin/env python3
"""Writes core/unicode_table.c: the code points of the general categories L and N.

Needs the Unicode version of the tables, 16.0: Python 3.14's unicodedata or the package
unicodedata2. Usage: tools/unicode.py > core/unicode_table.c"""
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

WANTED = "16.0.0"


def ranges(category):
    found = []
    for code in range(0x110000):
        if unicodedata.category(chr(code))[0] != category:
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, category):
    items = ["{0x%x, 0x%x}" % (first, last) for first, last in ranges(category)]
    lines, line = [], ""
    for item in items:
        if len(line) + len(item) + 2 > 94:
            lines.append(line)
            line = ""
        line += (" " if line else "") + item + ","
    lines.append(line)
    body = "\n".join("    " + text for text in lines)
    return ("const struct mcp_unicode_range mcp_unicode_%s[] = {\n%s\n};\n"
            "const int mcp_num_unicode_%s = %d;\n" % (name, body, name, len(items)))


if unicodedata.unidata_version != WANTED:
    sys.exit("unicode.py: this Python knows Unicode %s, expected %s"
             % (unicodedata.unidata_version, WANTED))
print("/* core/unicode_table.c: Unicode %s, general categories L and N; made by tools/unicode.py. */"
      % WANTED)
print('#include "core/unicode.h"\n')
print("/* clang-format off */")
print(table("letters", "L"))
print(table("numbers", "N"), end="")
