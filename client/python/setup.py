# SPDX-License-Identifier: Apache-2.0
"""The extension: built against the libkvcache of the build tree around it, or an installed one.

KVCACHE_INCLUDE_DIR and KVCACHE_LIBRARY_DIR: where other headers and another libkvcache.so are.
"""

import os
import subprocess
import sys
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

TREE = Path(__file__).resolve().parents[2]


def flags() -> dict[str, list[str]]:
    """Include and library directories."""
    include = os.environ.get("KVCACHE_INCLUDE_DIR", str(TREE / "include"))
    library = os.environ.get("KVCACHE_LIBRARY_DIR", str(TREE / "build/release/bin"))
    header = Path(include) / "kvcache/kvcache.h"
    if header.exists() and (Path(library) / "libkvcache.so").exists():
        return {"include_dirs": [include], "library_dirs": [library]}
    try:
        words = subprocess.run(
            ["pkg-config", "--cflags-only-I", "--libs-only-L", "kvcache"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        sys.exit(
            "kvcache_client needs libkvcache and its headers. pkg-config does not find 'kvcache' "
            "(install kvcache-daemon), and there is no libkvcache.so in "
            f"{library} (KVCACHE_LIBRARY_DIR) with headers in {include} (KVCACHE_INCLUDE_DIR)"
        )
    return {
        "include_dirs": [w[2:] for w in words if w.startswith("-I")],
        "library_dirs": [w[2:] for w in words if w.startswith("-L")],
    }


def model_sources() -> list[str]:
    """The files that read a model's config.json: of an sdist, or of the tree around this one."""
    if glob("ext/model/*.c"):
        return sorted(glob("ext/model/*.c"))
    wire = "../../daemon/base/wire/file_kind.c"
    return [*sorted(glob("../model/kv_*.c")), wire]


class BuildExt(build_ext):
    """Looks for the library when it compiles: an sdist is made without."""

    def build_extensions(self) -> None:
        """Compiles and links."""
        found = flags()
        for extension in self.extensions:
            extension.include_dirs += found["include_dirs"]
            extension.library_dirs += found["library_dirs"]
        super().build_extensions()


setup(
    cmdclass={"build_ext": BuildExt},
    ext_modules=[
        Extension(
            "kvcache_client._kvc",
            sources=[*sorted(glob("ext/*.c")), *model_sources()],
            depends=glob("ext/*.h"),
            include_dirs=sorted({str(Path(one).parent) for one in model_sources()}),
            define_macros=[("_GNU_SOURCE", "")],
            extra_compile_args=["-std=gnu17", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden"],
            libraries=["kvcache", "jansson"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
