# SPDX-License-Identifier: Apache-2.0
"""licenses.py DIR: licence texts of the libraries in an unpacked wheel, beside its own.

auditwheel copies libraries into the wheel (``*.libs``), and no licences. Debian has the texts in
/usr/share/doc/PACKAGE/copyright; what those refer to in /usr/share/common-licenses comes along.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOC = Path("/usr/share/doc")
COMMON = Path("/usr/share/common-licenses")
OURS = "libkvcache"
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


def texts_of(root: Path) -> dict[str, bytes]:
    """File names below licenses/ and their texts."""
    texts: dict[str, bytes] = {}
    common: set[str] = set()
    for path in sorted(root.glob("*.libs/*")):
        library = _DIGEST.sub("", path.name)
        name = library.split(".so")[0]
        if name == OURS:
            continue
        text = (DOC / package_of(library) / "copyright").read_bytes()
        texts[f"{name}.txt"] = text
        found = re.findall(rf"{COMMON}/([\w.+-]*\w)", text.decode(errors="replace"))
        common |= set(found)
    if "LGPL-3" in common:
        common.add("GPL-3")  # which it is an addition to
    return texts | {f"common-licenses/{n}": (COMMON / n).read_bytes() for n in sorted(common)}


def main(root: Path) -> None:
    """Writes the texts, and names them in METADATA."""
    (info,) = root.glob("*.dist-info")
    texts = texts_of(root)
    if not texts:
        sys.exit(f"licenses.py: {root} has no libraries: a repaired wheel was expected")
    for name, text in texts.items():
        path = info / "licenses" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
    metadata = (info / "METADATA").read_text()
    lines = "".join(f"License-File: {name}\n" for name in texts)
    last = metadata.rindex("License-File:", 0, metadata.index("\n\n"))
    end = metadata.index("\n", last) + 1
    (info / "METADATA").write_text(metadata[:end] + lines + metadata[end:])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
