# SPDX-License-Identifier: Apache-2.0
"""What is in the wheel: libraries with their licences, and nothing that NOTICE does not name."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.licenses import canonicalize_license_expression


def licences() -> dict[str, str]:
    """Texts below dist-info/licenses."""
    try:
        files = distribution("kvcache-client").files or []
    except PackageNotFoundError:
        pytest.skip("the package of a build tree: no wheel is installed")
    return {
        str(f).split(".dist-info/licenses/")[1]: f.read_binary().decode(errors="replace")
        for f in files
        if ".dist-info/licenses/" in str(f)
    }


def libraries() -> set[str]:
    """Names of what auditwheel has put in, without digest and version."""
    files = distribution("kvcache-client").files or []
    names = {f.name for f in files if f.parent.name == "kvcache_client.libs"}
    return {re.sub(r"-[0-9a-f]{8}(?=\.)", "", n).split(".so")[0] for n in names} - {"libkvcache"}


def test_each_library_has_its_licence() -> None:
    texts = licences()
    assert {"libzmq", "libcrypto", "libxxhash"} <= libraries()
    assert {n.removesuffix(".txt") for n in texts if n.endswith(".txt")} == libraries()
    for name in libraries():
        assert "copyright" in texts[f"{name}.txt"].lower(), name
    assert "LGPL-3.0+ with special exception" in texts["libzmq.txt"]
    assert "Apache-2.0" in texts["libcrypto.txt"]


def test_texts_that_are_referred_to_are_there() -> None:
    texts = licences()
    for name, text in texts.items():
        for other in re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text):
            assert len(texts[f"common-licenses/{other}"]) > 1000, (name, other)
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in texts["common-licenses/LGPL-3"]
    assert "GNU GENERAL PUBLIC LICENSE" in texts["common-licenses/GPL-3"]


def test_metadata_names_them_all() -> None:
    texts = licences()
    named = distribution("kvcache-client").metadata.get_all("License-File") or []
    assert sorted(named) == sorted(texts)
    assert {"LICENSE", "NOTICE"} <= set(named)


def table() -> dict[str, str]:
    """NOTICE's libraries of the wheel, and their licences."""
    notice = licences()["NOTICE"].split("The wheel of kvcache_client")[1]
    return dict(re.findall(r"^  (lib\S+) +(\S.*)$", notice, re.M))


def test_notice_names_each_library() -> None:
    assert set(table()) == libraries()


def test_the_expression_is_of_all_that_is_inside() -> None:
    inside = {part for one in table().values() for part in one.split(" AND ")}
    of_all = distribution("kvcache-client").metadata["License-Expression"]
    assert set(of_all.split(" AND ")) == inside | {"Apache-2.0"}
    assert canonicalize_license_expression(of_all) == of_all
    assert {"LGPL-3.0-or-later", "BSD-2-Clause", "ISC"} <= inside
