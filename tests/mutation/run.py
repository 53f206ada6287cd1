#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts each defect of this directory into a copy of the tree and demands that a test fails.

A defect is a file NAME.mut (README.md has the format). The copy is build/mutation/tree; it and its
build stay between runs, so that a second run compiles only what changed. Without a defect the same
tests must pass first. Exit status 0: every defect was caught; 1: one survived, does not apply or
does not build, or a test fails without it.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TREE = os.path.join(ROOT, "build", "mutation", "tree")
PRESETS = ("asan", "release")
LEFT_OUT = "^(gate|gpu|long)$"


class Failure(Exception):
    """What is wrong with a defect or the run, in words for whoever started it."""


class Defect:
    """One NAME.mut: headers, then edits."""

    def __init__(self, path):
        self.name = os.path.basename(path)[: -len(".mut")]
        with open(path, encoding="utf-8") as file:
            text = file.read()
        head, *edits = re.split(r"^<<<< (.*)\n", text, flags=re.M)
        self.what = self.header(head, "what")
        self.tests = self.header(head, "tests").split()
        self.caught_by = self.header(head, "caught by", "")
        self.preset = self.header(head, "preset", PRESETS[0])
        if self.preset not in PRESETS:
            raise Failure(f"{path}: preset '{self.preset}' is none of {' '.join(PRESETS)}")
        self.edits = []
        for file_name, edit in zip(edits[::2], edits[1::2]):
            match = re.fullmatch(r"(.*)^====\n(.*)^>>>>\n\s*", edit, flags=re.M | re.S)
            if not match:
                raise Failure(f"{path}: an edit is '<<<< FILE', old, '====', new, '>>>>'")
            self.edits.append((file_name.strip(), match.group(1), match.group(2)))
        if not self.edits:
            raise Failure(f"{path}: no edit ('<<<< FILE', old, '====', new, '>>>>')")

    def header(self, head, key, default=None):
        match = re.search(rf"^{key}: *(.+)$", head, flags=re.M)
        if not match and default is None:
            raise Failure(f"{self.name}.mut: no line '{key}: ...'")
        return match.group(1) if match else default

    def files(self):
        return sorted({file for file, _, _ in self.edits})

    def row(self):
        """The defect's line in the table of --table."""
        files = ", ".join(f"`{file}`" for file in self.files())
        cells = (f"`{self.name}`", self.what, files, self.caught_by or " ".join(self.tests))
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def apply(self, read):
        """File -> its text with the defect; `read` gives the text without."""
        texts = {file: read(file) for file in self.files()}
        for file, old, new in self.edits:
            found = texts[file].count(old)
            if found != 1:
                raise Failure(
                    f"{self.name} does not apply: {found} places in {file} have\n{old.rstrip()}"
                )
            texts[file] = texts[file].replace(old, new)
        return texts


def read_tree(root):
    def read(file):
        try:
            with open(os.path.join(root, file), encoding="utf-8") as opened:
                return opened.read()
        except OSError as error:
            raise Failure(f"{file}: {error.strerror}") from error

    return read


def write_tree(file, text):
    with open(os.path.join(TREE, file), "w", encoding="utf-8") as opened:
        opened.write(text)


def sync():
    """Makes TREE the tree as it is now. What did not change keeps its time."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        raise Failure("the tree is no git checkout, so its files are not known")
    wanted = {name for name in listed.stdout.decode().split("\0") if name}
    wanted = {name for name in wanted if os.path.isfile(os.path.join(ROOT, name))}
    for directory, folders, names in os.walk(TREE):
        if directory == TREE and "build" in folders:
            folders.remove("build")
        for name in names:
            path = os.path.join(directory, name)
            if os.path.relpath(path, TREE) not in wanted:
                os.unlink(path)
    for name in wanted:
        source, copy = os.path.join(ROOT, name), os.path.join(TREE, name)
        with open(source, "rb") as file:
            content = file.read()
        if os.path.isfile(copy):
            with open(copy, "rb") as file:
                if file.read() == content:
                    continue
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copy2(source, copy)
        os.utime(copy)


def command(*arguments):
    """Runs it in TREE -> (exit status, output)."""
    environment = dict(os.environ, CCACHE_BASEDIR=TREE, CCACHE_NOHASHDIR="1")
    # 6 GB are not made once more for the copy.
    environment.setdefault("KVC_ENGINES", os.path.join(ROOT, "build", "engines"))
    if shutil.which("ccache"):
        environment.setdefault("CMAKE_C_COMPILER_LAUNCHER", "ccache")
    done = subprocess.run(
        arguments,
        cwd=TREE,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout


def build_dir(preset):
    return os.path.join(TREE, "build", preset)


def build(preset, jobs, targets):
    status, said = command(
        "cmake", "--build", build_dir(preset), "-j", str(jobs), *(["--target", *targets] if targets else [])
    )
    if status != 0:
        errors = [line for line in said.splitlines() if re.search(r"error|FAILED", line)]
        raise Failure("does not build:\n" + "\n".join(errors[:10] or said.splitlines()[-10:]))


def run_tests(preset, names):
    """Runs these tests, all of them for None -> what failed, as a list of words."""
    chosen = ["-R", "^(" + "|".join(names) + ")$"] if names else ["-LE", LEFT_OUT]
    status, said = command(
        "ctest", "--test-dir", build_dir(preset), "--output-on-failure", "--no-tests=error", *chosen
    )
    if "No tests were found" in said:
        raise Failure(f"no such tests: {' '.join(names or [])}")
    if names and len(re.findall(r"^ *\d+/\d+ Test ", said, flags=re.M)) != len(names):
        raise Failure(f"not all of these are tests: {' '.join(names)}")
    skipped = re.findall(r"^\s*\d+ - (\S+) \(Skipped\)", said, flags=re.M)
    if names and skipped:
        raise Failure(f"skipped, so that nothing is caught: {' '.join(skipped)}")
    if status == 0:
        return []
    cases = re.findall(r"^\S+?:\d+:[FES]:[^:]*:([^:]*):", said, flags=re.M)
    tests = re.findall(r"^\s*\d+ - (\S+) \(", said, flags=re.M)
    return list(dict.fromkeys(cases)) or tests or ["(ctest says only that it failed)"]


def targets_of(tests):
    """A test is a program of its name; one with another loop, seeds or options adds a suffix."""
    return sorted({re.sub(r"_epoll$|(?<=^sim)_.*$|(?<=^nvmesim)_.*$|(?<=^crash)_.*$", "", test) for test in tests})


def without_target(defects, directory):
    """What the defects' tests would build and this build does not know: one such name ends a run."""
    said = subprocess.run(["cmake", "--build", directory, "--target", "help"], capture_output=True,
                          text=True, check=True).stdout
    known = set(re.findall(r"^([^\s:]+):", said, flags=re.M))
    return sorted({target for defect in defects for target in targets_of(defect.tests)} - known)


def check(defect, arguments, read):
    """Puts the defect in, tests, takes it out again -> what failed."""
    texts = defect.apply(read)
    try:
        for file, text in texts.items():
            write_tree(file, text)
        build(defect.preset, arguments.jobs, [] if arguments.all else targets_of(defect.tests))
        return run_tests(defect.preset, None if arguments.all else defect.tests)
    finally:
        for file in texts:
            write_tree(file, read(file))


def prepare(arguments, defects):
    """A build without any defect in which the tests pass."""
    os.makedirs(TREE, exist_ok=True)
    sync()
    for preset in sorted({defect.preset for defect in defects}):
        status, said = command("cmake", "--preset", preset)
        if status != 0:
            raise Failure("the tree cannot be configured:\n" + said)
        tests = sorted({t for defect in defects if defect.preset == preset for t in defect.tests})
        build(preset, arguments.jobs, [] if arguments.all else targets_of(tests))
        failed = run_tests(preset, None if arguments.all else tests)
        if failed:
            raise Failure("without any defect these fail already: " + ", ".join(failed))


def self_test():
    """The edits fail loudly, and a defect that no test sees is told from one that is caught."""
    texts = {"a.c": "one\ntwo\ntwo\n"}
    defect = Defect.__new__(Defect)
    defect.name = "self-test"
    for old, applies in (("one\n", True), ("two\n", False), ("three\n", False)):
        defect.edits = [("a.c", old, "x\n")]
        try:
            defect.apply(texts.__getitem__)
            applied = True
        except Failure:
            applied = False
        if applied != applies:
            raise Failure(f"self-test: an edit of {old!r} {'does not apply' if applies else 'applies'}")
    if verdict([]) == 0 or verdict(["a_test"]) != 0:
        raise Failure("self-test: a defect that survives must count as one")
    if targets_of(["crash_power", "nvmesim_seeds", "sim_seeds", "test_loop_epoll"]) != [
        "crash",
        "nvmesim",
        "sim",
        "test_loop",
    ]:
        raise Failure("self-test: a test with a suffix is built as its program")
    defect.what, defect.tests, defect.caught_by = "one is | two", ["a_test"], ""
    row = "| `self-test` | one is \\| two | `a.c` | a_test |"
    if defect.row() != row:
        raise Failure(f"self-test: a row of the table is {defect.row()}, not {row}")
    read = read_tree(ROOT)
    every = all_defects()
    wrong = []
    for one in every:
        try:
            one.apply(read)
        except Failure as failure:
            wrong.append(str(failure))
    if "KVC_BIN_DIR" in os.environ:
        directory = os.path.dirname(os.environ["KVC_BIN_DIR"])
        wrong += [f"no target {name}, the test of a defect" for name in without_target(every, directory)]
    if wrong:
        raise Failure("\n".join(wrong))
    print(f"mutation --self-test: {len(every)} defects apply to this tree")


def verdict(failed):
    return 0 if failed else 1


def all_defects():
    names = sorted(name for name in os.listdir(HERE) if name.endswith(".mut"))
    return [Defect(os.path.join(HERE, name)) for name in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="defects (default: all)")
    parser.add_argument("--all", action="store_true", help="the whole suite for each, not its tests")
    parser.add_argument("--list", action="store_true", help="print the defects and end")
    parser.add_argument("--table", action="store_true", help="print them as a table in Markdown")
    parser.add_argument("--self-test", action="store_true", help="do all edits apply? (no build)")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count(), help="compilations at once")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
        return 0
    defects = all_defects()
    known = {defect.name for defect in defects}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        raise Failure(f"no defect {' '.join(unknown)}; there are {' '.join(sorted(known))}")
    if arguments.names:
        defects = [defect for defect in defects if defect.name in arguments.names]
    if arguments.list:
        for defect in defects:
            print(f"{defect.name:<28} {', '.join(defect.files())}: {defect.what}")
        return 0
    if arguments.table:
        print("| defect | what it does | file | caught by |\n|---|---|---|---|")
        for defect in defects:
            print(defect.row())
        return 0

    prepare(arguments, defects)
    read = read_tree(ROOT)
    bad = 0
    print(f"{'defect':<28} {'seconds':>7}  caught by")
    for defect in defects:
        began = time.monotonic()
        try:
            failed = check(defect, arguments, read)
            told = ", ".join(failed[:3]) + (f" and {len(failed) - 3} more" if len(failed) > 3 else "")
            told = told or "NOTHING: it survives " + ("every test" if arguments.all else " ".join(defect.tests))
            bad += verdict(failed)
        except Failure as failure:
            told = f"FAILED: {failure}"
            bad += 1
        print(f"{defect.name:<28} {time.monotonic() - began:>7.1f}  {told}", flush=True)
    print(f"{len(defects) - bad} of {len(defects)} defects caught")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"mutation: {failure}", file=sys.stderr)
        sys.exit(1)
