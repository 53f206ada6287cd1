#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gate: files of a folder that call each other in a circle are no more than its limit.

cycles.py ROOT BUILD [TABLE]  holds the folders of TABLE (cycles.txt beside this file) to their limits
cycles.py --self-test CC      checks that the gate rejects folders that are beyond theirs

A file calls another when its object code wants a symbol that the other's object code has; BUILD has
the objects and compile_commands.json, which says of which source each is. Exit status 1: a cycle is
too large, or a folder of the table has nothing to look at.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "cycles.txt")
CALLS_SHOWN = 60


class Failure(Exception):
    """What is wrong with the table or the build."""


def rows(path):
    """(folder, with sub-folders?, limit) of each line of the table."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if not words:
                continue
            if len(words) != 2 or not words[1].isdigit():
                raise Failure(f"{path}: not 'folder files': {line.strip()}")
            folder = words[0]
            deep = folder.endswith("/**")
            yield folder[:-3] if deep else folder, deep, int(words[1])


def objects(root, build):
    """Source, as the root sees it -> its object; of several, the first."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    found = {}
    for entry in entries:
        source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root)
        words = shlex.split(entry["command"])
        if "-o" in words:
            path = os.path.join(entry["directory"], words[words.index("-o") + 1])
            found.setdefault(source, path)
    return found


def symbols(paths):
    """Of each object what it has for others, and what it wants of them."""
    for path in paths:
        if not os.path.exists(path):
            raise Failure(f"{path} is not built")
    said = subprocess.run(
        ["nm", "-g", "-P", "-A", *paths], check=True, capture_output=True, text=True
    ).stdout
    of = {path: (set(), set()) for path in paths}
    for line in said.splitlines():
        path, rest = line.rsplit(": ", 1)
        name, kind = rest.split()[:2]
        of[path][kind == "U"].add(name)
    return of


def edges_of(sources):
    """{file: {file it calls: names}}; sources: file -> object."""
    of = symbols(list(sources.values()))
    tables = {file: of[path] for file, path in sources.items()}
    home = {name: file for file, (has, _) in tables.items() for name in has}
    edges = {}
    for file, (_, wants) in tables.items():
        edges[file] = {}
        for name in wants:
            if home.get(name, file) != file:
                edges[file].setdefault(home[name], set()).add(name)
    return edges


def reach(edges, start):
    seen, todo = set(), [start]
    while todo:
        for file in edges[todo.pop()]:
            if file not in seen:
                seen.add(file)
                todo.append(file)
    return seen


def largest_cycle(edges):
    """Files that reach each other; of several such sets the largest, in order."""
    seen = {file: reach(edges, file) for file in edges}
    best = []
    for file in sorted(edges):
        cycle = sorted(other for other in seen[file] if file in seen[other])
        best = cycle if len(cycle) > len(best) else best
    return best or sorted(edges)[:1]


def tell(edges, cycle):
    """Each call inside the cycle, one line for two files."""
    lines = [
        f"    {file} -> {other}: {', '.join(sorted(edges[file][other]))}"
        for file in cycle
        for other in sorted(edges[file])
        if other in cycle
    ]
    more = len(lines) - CALLS_SHOWN
    return lines[:CALLS_SHOWN] + ([f"    ({more} more)"] if more > 0 else [])


def check(root, build, table):
    """Prints what is wrong, and limits that are too high. True: nothing is wrong."""
    of_source = objects(root, build)
    good, counted = True, 0
    for folder, deep, limit in rows(table):
        mine = re.compile(re.escape(folder) + ("/.*" if deep else r"/[^/]*") + r"\.c")
        sources = {file: path for file, path in of_source.items() if mine.fullmatch(file)}
        if not sources:
            raise Failure(f"{folder} has no sources in {build}, so nothing was proved")
        edges = edges_of(sources)
        cycle = largest_cycle(edges)
        counted += len(sources)
        if len(cycle) > limit:
            good = False
            print(f"gate_cycles: {folder}: {len(cycle)} files call each other in a circle, of "
                  f"{len(sources)}; at most {limit} may:", file=sys.stderr)
            print("\n".join(tell(edges, cycle)), file=sys.stderr)
        elif len(cycle) < limit:
            print(f"gate_cycles: {folder}: its limit of {limit} can be {len(cycle)} (cycles.txt)")
    if good:
        print(f"gate_cycles: {counted} files, no cycle beyond its limit")
    return good


# ---- self-test ----

RING = {
    "a.c": "int b(void); int a(void); int a(void) { return b(); }",
    "b.c": "int c(void); int b(void); int b(void) { return c(); }",
    "c.c": "int a(void); int c(void); int c(void) { return a(); }",
    "top.c": "int a(void); int top(void); int top(void) { return a(); }",
}
# A table of functions is a call as well, and a static function is nobody else's.
TABLES = {
    "x/a.c": "extern int (*const b[1])(void); int a(void); int a(void) { return b[0](); }",
    "y/b.c": "int a(void); extern int (*const b[1])(void); int (*const b[1])(void) = {a};",
    "y/c.c": "static int a(void) { return 1; } int c(void); int c(void) { return a(); }",
}


def tree(root, cc, files, limits):
    """A folder `f` of these sources, compiled, and its table."""
    commands = []
    for name, text in files.items():
        source = os.path.join(root, "f", name)
        os.makedirs(os.path.dirname(source), exist_ok=True)
        with open(source, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        words = [cc, "-c", "-o", source + ".o", source]
        subprocess.run(words, check=True)
        commands.append({"directory": root, "file": source, "command": shlex.join(words)})
    with open(os.path.join(root, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(commands, file)
    table = os.path.join(root, "table.txt")
    with open(table, "w", encoding="utf-8") as file:
        file.write(limits + "\n")
    return table


def verdict(cc, files, limits):
    """Exit status and words of the gate on such a tree."""
    with tempfile.TemporaryDirectory() as root:
        table = tree(root, cc, files, limits)
        done = subprocess.run(
            [sys.executable, os.path.abspath(__file__), root, root, table],
            check=False, capture_output=True, text=True,
        )
        return done.returncode, done.stdout + done.stderr


def self_test(cc):
    cases = [
        ("a ring of three where two may", RING, "f 2", 1, "3 files call each other in a circle"),
        ("and names its calls", RING, "f 2", 1, "f/c.c -> f/a.c: a"),
        ("a ring through sub-folders", TABLES, "f/** 1", 1, "f/y/b.c -> f/x/a.c: a"),
        ("a folder without sources", RING, "g 1", 1, "nothing was proved"),
        ("sub-folders that are not asked for", TABLES, "f 1", 1, "nothing was proved"),
        ("a limit that is no number", RING, "f some", 1, "not 'folder files'"),
    ]
    accepted = [
        ("a ring of three where three may", RING, "f 3", 0, "no cycle beyond its limit"),
        ("a limit that is too high, and says so", RING, "f 4", 0, "limit of 4 can be 3"),
        ("a file that a ring does not call back", {"top.c": RING["top.c"]}, "f 1", 0, "1 files"),
        ("a ring of two in sub-folders", TABLES, "f/** 2", 0, "no cycle beyond its limit"),
    ]
    for what, files, limits, status, words in cases + accepted:
        rc, said = verdict(cc, files, limits)
        if rc != status or words not in said:
            print(f"gate_cycles --self-test: {what}: status {rc}, not {status}, or without "
                  f"'{words}':\n{said}", file=sys.stderr)
            return False
        print(f"{'rejects' if status else 'accepts'} {what}")
    return True


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--self-test":
        return self_test(arguments[1])
    if len(arguments) not in (2, 3):
        print("usage: cycles.py ROOT BUILD [TABLE] | cycles.py --self-test CC", file=sys.stderr)
        sys.exit(2)
    root, build = (os.path.realpath(path) for path in arguments[:2])
    return check(root, build, arguments[2] if len(arguments) == 3 else TABLE)


if __name__ == "__main__":
    try:
        sys.exit(0 if main(sys.argv[1:]) else 1)
    except Failure as failure:
        print(f"gate_cycles: {failure}", file=sys.stderr)
        sys.exit(1)
