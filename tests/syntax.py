#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The compiler's warnings for each C file that BUILD has not compiled, without the work of compiling.

syntax.py BUILD   BUILD has compile_commands.json; exit status 1: a file has a warning or an error

Warnings are errors there, and come from the front end: an object and a linked program add nothing.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def check(entry):
    """What the compiler says of one file; None: nothing."""
    command = shlex.split(entry["command"])
    command[command.index("-o") + 1] = os.devnull
    said = subprocess.run(command + ["-fsyntax-only"], cwd=entry["directory"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return f"{entry['file']}:\n{said.stdout}" if said.returncode or said.stdout else None


def main(build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    left = [e for e in entries if e["file"].endswith(".c") and os.path.exists(e["file"])
            and not os.path.exists(os.path.join(e["directory"], shlex.split(e["command"])[-3]))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bad = [said for said in pool.map(check, left) if said]
    print("\n".join(bad + [f"syntax.py: {len(left)} files, {len(bad)} with warnings"]))
    return 1 if bad or len(entries) == 0 else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
