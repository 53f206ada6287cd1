# SPDX-License-Identifier: Apache-2.0
"""Memory that is refused to the extension: each of its allocations once, in every kind of call.

Nothing ends the process, nothing is left behind, the call raises MemoryError, and the next one is
right. What Python asks for meanwhile is refused as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Daemon

HERE = Path(__file__).parent
SCENES = [
    "look",
    "hash",
    "namespace",
    "hold",
    "dlpack",
    "store",
    "put",
    "device",
    "layouts",
    "names",
    "pins",
    "models",
    "numbers",
    "errors",
    "halves",
    "pool_halves",
    "wake",
    "sessions",
    "imports",
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for refuse.c")
    made = tmp_path_factory.mktemp("refuse") / "librefuse.so"
    options = ["-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    subprocess.run([compiler, *options, "-o", made, HERE / "refuse.c"], check=True, env=plain)
    return str(made)


def play(daemon: Daemon, library: str, scene: str) -> dict[str, Any]:
    env = {**os.environ, "PYTHONMALLOC": "malloc", "PYTHONFAULTHANDLER": "1"}
    env["LD_PRELOAD"] = f"{library}:{env.get('LD_PRELOAD', '')}"
    # refuse.c asks AddressSanitizer, where that is preloaded too.
    env["ASAN_OPTIONS"] = f"{env.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"
    command = [sys.executable, str(HERE / "refused.py"), daemon.socket, scene]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("scene", SCENES)
def test_each_allocation_is_refused_once(daemon: Daemon, library: str, scene: str) -> None:
    found = play(daemon, library, scene)
    assert found["modules"] >= 2, "Python's code and the extension's"
    assert set(found["outcomes"]) <= {"good", "MemoryError"}, found
    assert found["refused"] >= found["outcomes"]["MemoryError"] > 1
    assert not found["grew"], found
    assert found["leases"] == 0
