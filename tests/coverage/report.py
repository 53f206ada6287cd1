#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Line coverage per directory out of gcovr's JSON summary, against limits.

report.py SUMMARY.json  prints the table; exit status 1 when a limit is not reached
report.py --self-test   checks on made-up summaries that every limit can fail
"""
import json
import os
import sys

# What the total counts. Benchmarks and kernels are shown below it.
PRODUCT = ("client", "daemon", "include", "policy")
TOTAL_MIN = 85.0
# Directories with a limit of their own, each without its subdirectories.
DIRECTORY_MIN = {
    "daemon/core": 92.0,
    "policy": 92.0,
    "daemon/svc": 92.0,
    "client/codec": 92.0,
}
LEAST_COVERED = 5


class Lines:
    """Lines that can run, and those that did."""

    def __init__(self, all_lines=0, run=0):
        self.all, self.run = all_lines, run

    def add(self, other):
        self.all += other.all
        self.run += other.run

    def percent(self):
        return 100.0 * self.run / self.all if self.all else 0.0

    def row(self, name, limit=None):
        text = f"{name:<20} {self.all:>7} {self.run:>7} {self.percent():>7.1f} %"
        return text if limit is None else f"{text}   (at least {limit:.0f} %)"


def files_of(summary):
    """Path -> Lines, of a summary whose every file must be below the root."""
    files = {}
    for entry in summary["files"]:
        files[entry["filename"]] = Lines(entry["line_total"], entry["line_covered"])
    return files


def sum_up(files):
    """Total of the product, and per directory."""
    total, directories = Lines(), {}
    for path, lines in files.items():
        directories.setdefault(os.path.dirname(path), Lines()).add(lines)
        if path.split("/")[0] in PRODUCT:
            total.add(lines)
    return total, directories


def least_covered(files, directory):
    """The files that lack most lines, of a directory or (with None) of the product."""
    chosen = [
        (lines.all - lines.run, path, lines)
        for path, lines in files.items()
        if lines.run < lines.all
        and (
            path.split("/")[0] in PRODUCT
            if directory is None
            else os.path.dirname(path) == directory
        )
    ]
    return sorted(chosen, key=lambda item: (-item[0], item[1]))[:LEAST_COVERED]


def shortfalls(files):
    """What is below its limit: (name, directory or None, Lines, limit)."""
    total, directories = sum_up(files)
    short = []
    if total.percent() < TOTAL_MIN:
        short.append(("total", None, total, TOTAL_MIN))
    for name, limit in DIRECTORY_MIN.items():
        lines = directories.get(name, Lines())
        if lines.percent() < limit:
            short.append((name, name, lines, limit))
    return short


def report(files):
    total, directories = sum_up(files)
    print(f"{'directory':<20} {'lines':>7} {'run':>7} {'share':>9}")
    others = []
    for name in sorted(directories):
        row = directories[name].row(name, DIRECTORY_MIN.get(name))
        if name.split("/")[0] in PRODUCT:
            print(row)
        else:
            others.append(row)
    print(total.row("total", TOTAL_MIN))
    if others:
        print("not in the total:")
        print("\n".join(others))
    short = shortfalls(files)
    for name, directory, lines, limit in short:
        print(f"BELOW ITS LIMIT: {name}: {lines.percent():.1f} % of at least {limit:.0f} %")
        for missing, path, of in least_covered(files, directory):
            print(f"  {path}: {missing} of {of.all} lines did not run")
    return 1 if short else 0


def self_test():
    def verdict(**changes):
        """Names of what falls short when all is at 95 % but for the changes (file -> share)."""
        shares = {name + "/all.c": 95 for name in DIRECTORY_MIN}
        shares["daemon/io/all.c"] = 95
        shares["bench/all.c"] = 0
        shares.update({key.replace("__", "/") + "/all.c": value for key, value in changes.items()})
        summary = {
            "files": [
                {"filename": path, "line_total": 1000, "line_covered": 10 * share}
                for path, share in shares.items()
                if share is not None
            ]
        }
        return [name for name, *_ in shortfalls(files_of(summary))]

    expected = [
        (verdict(), []),
        (verdict(daemon__core=92), []),
        (verdict(daemon__core=91), ["daemon/core"]),
        (verdict(policy=91), ["policy"]),
        (verdict(daemon__svc=91), ["daemon/svc"]),
        (verdict(client__codec=91), ["client/codec"]),
        # A directory without any counted line has not been run.
        (verdict(client__codec=None), ["client/codec"]),
        # Five directories: (4 * 95 + 44) / 5 is below 85, (4 * 95 + 45) / 5 is not.
        (verdict(daemon__io=44), ["total"]),
        (verdict(daemon__io=45), []),
    ]
    for number, (found, wanted) in enumerate(expected):
        if found != wanted:
            print(f"report.py --self-test: case {number}: {found}, not {wanted}", file=sys.stderr)
            return 1
    print(f"report.py --self-test: {len(expected)} cases")
    return 0


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if sys.argv[1] == "--self-test":
        return self_test()
    with open(sys.argv[1], encoding="utf-8") as file:
        files = files_of(json.load(file))
    if not files:
        print("report.py: the summary names no file: nothing was measured", file=sys.stderr)
        return 1
    return report(files)


if __name__ == "__main__":
    sys.exit(main())
