#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gate: what one file alone uses is no field of a struct that many share.

fields.py ROOT [TABLE]  looks at the structs of TABLE (fields.txt beside this file)
fields.py --self-test   checks that the gate rejects structs with such fields

A file uses a field when it has `c->field`, where c is of the struct in that function, or names the
field with its struct (`offsetof`, an initialiser). Types of members and of functions' results are
read from the folder (`x->session->svc->field`). Sub-folders count with their folder. A header is
more than one file. A pointer to a struct that no header declares is no such field: it is how a file
keeps its state to itself. A struct may have a number of such fields, which only goes down. Exit
status 1: there is one too many, or nothing to look at.
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
    """[struct, folder, files that do not count, fields that may stay, most others] of each struct."""
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "-" and len(words) == 2 and found:
                found[-1][3].add(words[1])
            elif words[0] == "most" and len(words) == 2 and words[1].isdecimal() and found:
                found[-1][4] = int(words[1])
            elif words[0] not in ("-", "most") and len(words) >= 2:
                found.append([words[0], words[1], set(words[2:]), set(), 0])
            else:
                raise Failure(f"{path}: not 'struct folder files': {line.strip()}")
    return found


def texts(folder):
    """Source -> its text without comments, strings, code that is switched off, and values that are
    only thrown away."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            if name.endswith((".c", ".h")):
                with open(os.path.join(path, name), encoding="utf-8") as file:
                    text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
                text = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
                text = re.sub(r"//[^\n]*", " ", text)
                text = re.sub(r"^#if 0\n.*?^#endif", " ", text, flags=re.S | re.M)
                found[os.path.join(path, name)] = re.sub(r"\(void\)[\w.>\[\]-]+;", " ", text)
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


class Types:
    """Of a folder's sources: what type the members of its structs, and its functions, have."""

    def __init__(self, sources):
        self.members = {}  # (file, struct) -> {member: struct, or None for what is no struct}
        self.anywhere = {}  # struct -> the same, of a header before a .c file
        self.returns = {}
        self.globals = {}  # of headers
        for file, text in sorted(sources.items(), key=lambda item: not item[0].endswith(".h")):
            for body in re.finditer(r"^struct (\w+) \{\n(.*?)^\}", text, re.S | re.M):
                self._add(file, body.group(1), body.group(2))
            for tag, name in re.findall(r"^(?:[\w ]+ )?struct (\w+) \*(\w+)\(", text, re.M):
                self.returns[name] = tag
            if file.endswith(".h"):
                self.globals.update(
                    (name, tag) for tag, name in re.findall(r"^extern .*?struct (\w+) \*?(\w+)", text, re.M)
                )

    def _add(self, file, struct, body):
        found = {}
        while True:
            inner = re.search(r"\b(?:struct|union)\s*\w*\s*\{([^{}]*)\}\s*(\w*)", body)
            if not inner:
                break
            # A struct inside: its members are reached by its name, or without one if it has none.
            tag = f"{struct}.{len(found)}.{inner.start()}"
            self._add(file, tag, inner.group(1))
            if inner.group(2):
                body = f"{body[:inner.start()]}struct <{tag}> {inner.group(2)}{body[inner.end():]}"
            else:
                found.update(self.members[file, tag])
                body = body[:inner.start()] + body[inner.end():]
        for declaration in body.split(";"):
            of = re.match(r"\s*(?:const )?struct <?([\w.]+)>?", declaration)
            for name in re.findall(r"(\w+)\s*(?:\[[^,]*\]\s*)*(?=,|$|:)", declaration.strip()):
                found[name] = of.group(1) if of else None
        self.members[file, struct] = found
        self.anywhere.setdefault(struct, found)

    def of_member(self, file, struct, member):
        return self.members.get((file, struct), self.anywhere.get(struct, {})).get(member)


DECLARED = re.compile(r"\bstruct (\w+)\b\s*(?:const\b\s*)?\**\s*(?:const\s+)?(\w+)\s*(?=[;=,)\[:])"
                      r"(?:[^,;(){}]*,\s*\*\s*(\w+)\s*(?=[;=,]))?")
MEMBER = re.compile(r"\s*(?:->|\.)\s*(\w+)")


def functions(text):
    """(file scope, [functions with their heads]); a brace alone on its line opens and closes one."""
    outside, found = [], []
    for part in re.split(r"^\}\n", text, flags=re.M):
        opened = re.search(r"^\{\n", part, re.M)
        if not opened:
            outside.append(part)
            continue
        before = part[:opened.start()]
        head = max(before.rfind(";"), before.rfind("}"), before.rfind("\n\n")) + 1
        outside.append(before[:head])
        found.append(part[head:])
    return "\n".join(outside), found


def behind(text, at, opening, closing):
    """The place behind a bracket that opens at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if depth == 0:
            return i + 1
    return len(text)


def accesses(file, scope, known, types):
    """(struct, field) of each access in a function, by the types that variables have there."""
    declared = []
    for found in DECLARED.finditer(scope):
        declared += [(found.start(), name, found.group(1)) for name in found.groups()[1:] if name]
    for word in re.finditer(r"(?<![\w>.])([A-Za-z_]\w*)", scope):
        name, at = word.group(1), word.end()
        if scope[at:at + 1] == "(" and name in types.returns:
            struct, at = types.returns[name], behind(scope, at, "(", ")")
        else:
            of = [tag for place, other, tag in declared if other == name and place < word.start()]
            struct = of[-1] if of else known.get(name, types.globals.get(name))
            if scope[word.start() - 2:word.start()] == "(*" and scope[at:at + 1] == ")":
                at += 1
        while struct:
            while scope[at:at + 1] == "[":
                at = behind(scope, at, "[", "]")
            member = MEMBER.match(scope, at)
            if not member:
                break
            yield struct, member.group(1)
            struct, at = types.of_member(file, struct, member.group(1)), member.end()


def named(scope, struct):
    """Fields that are named with the struct: offsetof() and its like, casts, initialisers."""
    yield from re.findall(rf"\bstruct {struct},\s*(\w+)", scope)
    yield from re.findall(rf"\(\(struct {struct} \*\)[^()]*\)\s*->\s*(\w+)", scope)
    for opened in re.finditer(rf"\bstruct {struct}(?:\)| \w+ = )\s*\{{", scope):
        inside = scope[opened.end():behind(scope, opened.end() - 1, "{", "}") - 1]
        while re.search(r"\{[^{}]*\}", inside):
            inside = re.sub(r"\{[^{}]*\}", "", inside)
        yield from re.findall(r"\.(\w+)[\w.\[\]]* =", inside)


def users(struct, names, sources):
    """Field -> files that use it."""
    found = {name: set() for name in names}
    types = Types(sources)
    for file, text in sources.items():
        outside, bodies = functions(text)
        known = {}
        for place in DECLARED.finditer(re.sub(r"^struct \w+ \{\n.*?^\}", "", outside, flags=re.S | re.M)):
            known[place.group(2)] = place.group(1)
        for scope in bodies + [outside]:
            for of, name in accesses(file, scope, known, types):
                if of == struct and name in found:
                    found[name].add(file)
            for name in named(scope, struct):
                if name in found:
                    found[name].add(file)
    return found


def check(root, table):
    """Whether no struct of the table has more fields of one file than it may have."""
    good = True
    for struct, folder, apart, may_stay, most in rows(table):
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
        for name in sorted(may_stay - set(alone)):
            print(f"gate_fields: struct {struct}: '- {name}' of fields.txt is not needed any more")
        lonely = sorted(set(alone) - may_stay)
        if len(lonely) > most:
            good = False
            for name in lonely:
                print(f"gate_fields: struct {struct}: {name} is used by one file alone: {alone[name]}",
                      file=sys.stderr)
            if most:
                print(f"gate_fields: struct {struct}: {len(lonely)} such fields, at most {most}: one of"
                      " them is new", file=sys.stderr)
            continue
        if len(lonely) < most:
            print(f"gate_fields: struct {struct}: 'most {most}' of fields.txt can be {len(lonely)}")
        print(f"gate_fields: struct {struct}: {len(fields)} fields, {len(lonely)} of one file alone")
    return good


# ---- self-test ----

HEADER = """struct one;
struct other { int x; };
struct z {
    struct core *core;
    struct { struct core *at[2]; struct other *core; } in;
};
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
    # Another struct's field, by a variable that is called as one of the struct elsewhere in the file.
    by_variable = {"sub/b.c": GOOD["sub/b.c"] + "int g(struct core *c)\n{\n    return c->shared;\n}\n\n"
                                                "int h(struct q *c)\n{\n    return c->lonely;\n}\n"}
    by_member = {"sub/b.c": GOOD["sub/b.c"] + "int g(struct z *z)\n{\n    return z->in.core->lonely;\n}\n"}
    by_chain = {"sub/b.c": GOOD["sub/b.c"] + "int g(struct z *z)\n{\n    return z->in.at[z->n[1]]->lonely;\n}\n"}
    by_result = {"sub/b.c": GOOD["sub/b.c"] + "struct core *of(struct z *z)\n{\n    return z->core;\n}\n\n"
                                              "int g(struct z *z)\n{\n    return of(z)->lonely;\n}\n"}
    thrown = {"sub/b.c": GOOD["sub/b.c"] + "void g(struct core *c) { (void)c->lonely; }\n"}
    off = {"sub/b.c": GOOD["sub/b.c"] + "#if 0\nint g(struct core *c) { return c->lonely; }\n#endif\n"}
    said_of = {"sub/b.c": GOOD["sub/b.c"] + "int g(struct core *c) { // c->lonely\n    return c->shared; }\n"}
    by_value = {"sub/b.c": GOOD["sub/b.c"] + "struct core g(void)\n{\n"
                                             "    return (struct core){.lonely = 1};\n}\n"}
    more = {**lonely, **one_user, "core.h": GOOD["core.h"].replace("shared", "shared, lonely, more")}
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
        ("rejects a second user by a variable of the same name", {**lonely, **one_user, **by_variable},
         row, "lonely is used by one file"),
        ("rejects a second user by a member of the same name", {**lonely, **one_user, **by_member}, row,
         "lonely is used by one file"),
        ("accepts a second user by members", {**lonely, **one_user, **by_chain}, row, ""),
        ("accepts a second user by a function's result", {**lonely, **one_user, **by_result}, row, ""),
        ("accepts a second user by an initialiser", {**lonely, **one_user, **by_value}, row, ""),
        ("rejects a second user that throws it away", {**lonely, **one_user, **thrown}, row,
         "lonely is used by one file"),
        ("rejects a second user that is switched off", {**lonely, **one_user, **off}, row,
         "lonely is used by one file"),
        ("rejects a second user in a comment", {**lonely, **one_user, **said_of}, row,
         "lonely is used by one file"),
        ("accepts as many as there may be", {**lonely, **one_user}, row + "most 1\n", "1 of one file"),
        ("rejects one more than there may be", more, row + "most 1\n", "2 such fields, at most 1"),
        ("accepts fewer than there may be, and says so", {**lonely, **one_user}, row + "most 2\n",
         "can be 1"),
        ("rejects a limit that is none", GOOD, row + "most\n", "not 'struct folder files'"),
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
