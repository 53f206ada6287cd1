# SPDX-License-Identifier: Apache-2.0
"""Screens of `kvcachectl top` on a terminal of 60, 80 and 200 columns.

top.py KVCACHECTL full|empty: whether a namespace holds something
"""

import fcntl
import os
import pty
import re
import struct
import sys
import termios

SIZES = ((60, 12), (80, 24), (200, 50))


def screen(command, columns, rows):
    """The lines that it draws; it sees the size from its first moment."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    pid = os.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        for fd in (0, 1, 2):
            os.dup2(slave, fd)
        os.execv(command[0], command)
    os.close(slave)
    text = b""
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:  # the terminal's other side is closed
            break
        if not more:
            break
        text += more
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    text = text.decode().rpartition("\033[2J")[2]
    text = re.sub(r"\033\[[0-9;]*[A-Za-z]", "", text).replace("\r", "")
    if code != 0:
        sys.exit(f"top: {columns}x{rows}: exit code {code}: {text}")
    return text.splitlines()


def check(lines, columns, rows, full):
    def fail(what):
        shown = "\n".join(lines)
        sys.exit(f"top: {columns}x{rows}: {what}\n{shown}")

    if len(lines) >= rows:
        fail(f"{len(lines)} lines scroll the screen")
    if max(len(line) for line in lines) > columns:
        fail("a line is too long")
    text = "\n".join(lines)
    for word in ("up ", "hits ", "TIER ", "\nhost ", "\nnvme "):
        if word not in text:
            fail(f"'{word}' is not there")
    # Columns are there as a whole or not at all, and so is what the first two lines say.
    if not re.search("; rates since it began$", lines[0]):
        fail("the first line is cut off")
    if not re.match(r"requests +\S+/s, errors \S+/s, median of all \S+ [mun]?s$", lines[1]):
        fail("the second line is cut off")
    known = "NS MODEL BLOCKS HOST NVME HBM LEASED GROWS TENANT PRINCIPAL TIER USED OF FULL IN OUT".split()
    for line in lines:
        if "BLOCKS" in line and not set(line.split()) <= set(known):
            fail(f"a column is cut off: {line}")
    if rows < 24:
        return
    if "'kvcachectl top --help'" not in text:
        fail("nothing says where columns are explained")
    if full != ("example" in text) or full != (" MODEL " in text):
        fail("a namespace that holds something is missing, or one that holds nothing is there")
    if columns >= 200 and full and "PRINCIPAL" not in text:
        fail("there is room for all columns")
    if not full and "no namespace holds anything" not in text:
        fail("nothing says that no namespace holds anything")


def main():
    for columns, rows in SIZES:
        lines = screen([sys.argv[1], "top", "--count", "1"], columns, rows)
        check(lines, columns, rows, sys.argv[2] == "full")


main()
