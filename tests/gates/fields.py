#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gate: what one file alone uses is no field of a struct that many share.

fields.py ROOT [TABLE]  looks at the structs of TABLE (fields.txt beside this file)
fields.py --self-test   checks that the gate rejects structs with such fields

A file uses a field when it has `c->field`, where c is declared in it as a pointer to the struct, or
is a member called as the struct (`x->core->field`). Sub-folders count with their folder. A header is
more than one file. A pointer to a struct that no header declares is no such field: it is how a file
keeps its state to itself. Exit status 1: there is such a field, or nothing to look at.
"""
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "fields.txt")


class Failure(Exception):
    """What is wrong with the table, or the tree that it speaks of."""


def rows(path):
    """[struct, folder, files that do not count, fields that may stay] of each struct."""
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "-" and len(words) == 2 and found:
                found[-1][3].add(words[1])
            elif words[0] != "-" and len(words) >= 2:
                found.append([words[0], words[1], set(words[2:]), set()])
            else:
                raise Failure(f"{path}: not 'struct folder files': {line.strip()}")
    return found


def texts(folder):
    """Source -> its text without comments and strings."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            if name.endswith((".c", ".h")):
                with open(os.path.join(path, name), encoding="utf-8") as file:
                    text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
                found[os.path.join(path, name)] = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    return found


def fields_of(struct, sources):
    """Each field's name and declaration, in order."""
    for text in sources.values():
        body = re.search(rf"^struct {struct} \{{\n(.*?)^\}};", text, re.S | re.M)
        if not body:
            continue
        # Of a struct inside only its name counts, which is behind it.
        flat = re.sub(r"\b(struct|union)\s*\w*\s*\{[^{}]*\}", "struct inner", body.group(1))
        flat = re.sub(r"\[[^\]]*\]", "", flat)
        found = []
        for declaration in flat.split(";"):
            pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
            names = [pointer.group(1)] if pointer else re.findall(r"(\w+)\s*(?=,|$)", declaration.strip())
            found += [(name, " ".join(declaration.split())) for name in names]
        return found
    raise Failure(f"no struct {struct} with fields is in the folder")


def is_private(declaration, sources):
    """A pointer to a struct that only a .c file has."""
    to = re.fullmatch(r"(?:const )?struct (\w+) \*\w+", declaration)
    return bool(to) and not any(
        re.search(rf"^struct {to.group(1)} \{{", text, re.M)
        for file, text in sources.items() if file.endswith(".h")
    )


def users(struct, names, sources):
    """Field -> files that use it."""
    found = {name: set() for name in names}
    for file, text in sources.items():
        own = set(re.findall(rf"\bstruct {struct} \*\s*(?:const\s+)?(\w+)", text))
        who = "|".join(sorted(own | {rf"\w+(?:->|\.){struct}"}))
        for name in re.findall(rf"\b(?:{who})\s*->\s*(\w+)", text):
            if name in found:
                found[name].add(file)
        # CORE_STATE(field) and its like name it as the file's own.
        for name in re.findall(rf"\boffsetof\(struct {struct}, (\w+)\)", text):
            if name in found:
                found[name].add(file)
    return found


def check(root, table):
    good = True
    for struct, folder, apart, may_stay in rows(table):
        sources = texts(os.path.join(root, folder))
        fields = fields_of(struct, sources)
        used = users(struct, [name for name, _ in fields], sources)
        if not any(used.values()):
            raise Failure(f"no field of struct {struct} is used in {folder}, so nothing was proved")
        alone = {}
        for name, declaration in fields:
            files = {file for file in used[name] if os.path.basename(file) not in apart}
            many = len(files) > 1 or any(file.endswith(".h") for file in files)
            if not many and not is_private(declaration, sources):
                alone[name] = ", ".join(os.path.relpath(file, root) for file in files) or "nobody"
        for name in sorted(set(alone) - may_stay):
            good = False
            print(f"gate_fields: struct {struct}: {name} is used by one file alone: {alone[name]}",
                  file=sys.stderr)
        for name in sorted(may_stay - set(alone)):
            print(f"gate_fields: struct {struct}: '- {name}' of fields.txt is not needed any more")
        if good:
            print(f"gate_fields: struct {struct}: {len(fields)} fields, none of one file alone")
    return good


# ---- self-test ----

HEADER = """struct one;
struct other { int x; };
struct core {
    int shared, lonely; /* c->shared */
    struct one *one;
    struct other *other;
    int (*fn)(int a);
    struct { int a, b; } inner[4];
};
"""
GOOD = {
    "core.h": HEADER.replace(", lonely", "").replace("    struct other *other;\n", ""),
    "a.c": "struct one { int y; };\n"
           "int a(struct core *c) { return c->shared + c->one->y + c->fn(1) + c->inner[0].a; }\n",
    "sub/b.c": "int b(const struct core *core, struct z *z) {\n"
               "    return core->shared + z->core->fn(2) + core->inner[1].b; }\n",
}


def verdict(files, table):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = os.path.join(root, "f", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        path = os.path.join(root, "table.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(table)
        try:
            said, kept = tempfile.TemporaryFile("w+"), (sys.stdout, sys.stderr)
            sys.stdout = sys.stderr = said
            good = check(root, path)
        except Failure as failure:
            good = False
            print(failure, file=said)
        finally:
            sys.stdout, sys.stderr = kept
        said.seek(0)
        return good, said.read()


def self_test():
    row = "core f set.c\n"
    lonely = dict(GOOD, **{"core.h": GOOD["core.h"].replace("shared", "shared, lonely")})
    one_user = {"a.c": lonely["a.c"] + "int d(struct core *c) { return c->lonely; }\n"}
    public = dict(GOOD, **{"core.h": HEADER.replace(", lonely", ""),
                           "a.c": GOOD["a.c"] + "int e(struct core *c) { return c->other->x; }\n"})
    set_up = {"set.c": "void s(struct core *c) { c->lonely = 0; }\n"}
    by_name = {"sub/b.c": GOOD["sub/b.c"] + "int g(struct q *q) { return q->lonely; }\n"}
    in_header = {"in.h": "static inline int h(struct core *c) { return c->lonely; }\n"}
    second = {"sub/c.c": "int i(struct core *const c) { return c->lonely; }\n"}
    cases = [
        ("accepts fields of several files, and a pointer to what is a file's", GOOD, row, ""),
        ("rejects a field of one file", {**lonely, **one_user}, row, "lonely is used by one file"),
        ("rejects one that is set up, too", {**lonely, **one_user, **set_up}, row, "f/a.c"),
        ("rejects one that nobody uses", lonely, row, "lonely is used by one file alone: nobody"),
        ("rejects one that another struct has as well", {**lonely, **one_user, **by_name}, row,
         "lonely is used by one file"),
        ("rejects a pointer to what a header declares", public, row, "other is used by one file"),
        ("rejects a struct that is not there", GOOD, "crore f\n", "no struct crore"),
        ("rejects a folder that does not use it", {"core.h": HEADER}, row, "nothing was proved"),
        ("rejects a row without a folder", GOOD, "core\n", "not 'struct folder files'"),
        ("accepts a field that may stay", {**lonely, **one_user}, row + "- lonely\n", ""),
        ("accepts a field of a header", {**lonely, **in_header}, row, ""),
        ("accepts a field of a second file", {**lonely, **one_user, **second}, row, ""),
        ("accepts, and names what need not stay", GOOD, row + "- shared\n", ""),
    ]
    for what, files, table, words in cases:
        good, said = verdict(files, table)
        if good != what.startswith("accepts") or words not in said:
            print(f"gate_fields --self-test: it is not so that it {what}:\n{said}", file=sys.stderr)
            return False
        print(what)
    return True


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) not in (1, 2):
        print("usage: fields.py ROOT [TABLE] | fields.py --self-test", file=sys.stderr)
        sys.exit(2)
    return check(os.path.realpath(arguments[0]), arguments[1] if len(arguments) == 2 else TABLE)


if __name__ == "__main__":
    try:
        sys.exit(0 if main(sys.argv[1:]) else 1)
    except Failure as failure:
        print(f"gate_fields: {failure}", file=sys.stderr)
        sys.exit(1)
