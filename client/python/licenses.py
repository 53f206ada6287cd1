# SPDX-License-Identifier: Apache-2.0
"""licenses.py DIR: licences of the libraries in an unpacked wheel, beside its own.

auditwheel copies libraries into the wheel (``*.libs``), and no licences. Debian has the texts in
/usr/share/doc/PACKAGE/copyright; what those refer to in /usr/share/common-licenses comes along.
License-Expression becomes that of all of them, by the table in NOTICE.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from packaging.licenses import canonicalize_license_expression

DOC = Path("/usr/share/doc")
COMMON = Path("/usr/share/common-licenses")
OURS, OUR_LICENSE = "libkvcache", "Apache-2.0"
# auditwheel puts a piece of a digest into each name: libzmq-98f0defc.so.5.2.4.
_DIGEST = re.compile(r"-[0-9a-f]{8}(?=\.)")


def package_of(library: str) -> str:
    """The Debian package that has a library."""
    found = subprocess.run(
        ["dpkg-query", "-S", f"*/{library}"], capture_output=True, text=True, check=False
    ).stdout
    packages = {line.split(":")[0] for line in found.splitlines()}
    if len(packages) != 1:
        sys.exit(
            f"licenses.py: {library} is in the wheel, and dpkg knows "
            f"{', '.join(sorted(packages)) or 'no package'} that has it: one was expected"
        )
    return packages.pop()


def libraries(root: Path) -> dict[str, str]:
    """Names of the libraries inside but ours, and those of their files as Debian has them."""
    files = [_DIGEST.sub("", path.name) for path in sorted(root.glob("*.libs/*"))]
    named = {file.split(".so")[0]: file for file in files}
    named.pop(OURS, None)
    return named


def expressions(notice: str) -> dict[str, str]:
    """SPDX expression of each library, by the table in NOTICE."""
    table = notice.split("The wheel of kvcache_client")[1]
    return dict(re.findall(r"^  (lib\S+) +(\S.*)$", table, re.M))


def expression_of(names: set[str], notice: str) -> str:
    """Of the wheel: our licence and those of what is inside."""
    known = expressions(notice)
    if set(known) != names:
        sys.exit(
            "licenses.py: the wheel and NOTICE do not have the same libraries: "
            f"{', '.join(sorted(set(known) ^ names))} is in one of them alone"
        )
    parts = {part for one in known.values() for part in one.split(" AND ")} - {OUR_LICENSE}
    return canonicalize_license_expression(" AND ".join([OUR_LICENSE, *sorted(parts)]))


def texts_of(root: Path) -> dict[str, bytes]:
    """File names below licenses/ and their texts."""
    texts: dict[str, bytes] = {}
    common: set[str] = set()
    for name, file in libraries(root).items():
        text = (DOC / package_of(file) / "copyright").read_bytes()
        texts[f"{name}.txt"] = text
        found = re.findall(rf"{COMMON}/([\w.+-]*\w)", text.decode(errors="replace"))
        common |= set(found)
    if "LGPL-3" in common:
        common.add("GPL-3")  # which it is an addition to
    return texts | {f"common-licenses/{n}": (COMMON / n).read_bytes() for n in sorted(common)}


def main(root: Path) -> None:
    """Writes the texts; METADATA names them, and the expression of all."""
    (info,) = root.glob("*.dist-info")
    texts = texts_of(root)
    if not texts:
        sys.exit(f"licenses.py: {root} has no libraries: a repaired wheel was expected")
    for name, text in texts.items():
        path = info / "licenses" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
    expression = expression_of(set(libraries(root)), (info / "licenses/NOTICE").read_text())
    head, text = (info / "METADATA").read_text().split("\n\n", 1)
    lines = [
        f"License-Expression: {expression}" if line.startswith("License-Expression:") else line
        for line in head.split("\n")
    ]
    last = max(i for i, line in enumerate(lines) if line.startswith("License-File:"))
    lines[last + 1 : last + 1] = [f"License-File: {name}" for name in texts]
    (info / "METADATA").write_text("\n".join(lines) + "\n\n" + text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
