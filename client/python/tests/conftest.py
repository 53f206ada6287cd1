# SPDX-License-Identifier: Apache-2.0
"""A daemon of the tests' own; KVCACHE_DAEMON names the program, else the build tree's is taken."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kvcache_client as kv

BLOCK_TOKENS = 16
BLOCK_BYTES = 4096
# The daemon's device: an emulated one, or the fake CUDA driver's (test_device.py).
DEVICE = os.environ.get("KVC_TEST_DEVICE", "emu:0")
DEVICES = (f"hbm.devices={DEVICE}=8MiB", "hbm.chunk=2MiB")


def daemon_program() -> str | None:
    """The daemon to test with: $KVCACHE_DAEMON, $KVC_BIN_DIR, the release build, the PATH."""
    named = os.environ.get("KVCACHE_DAEMON")
    if named:
        return named
    bins = [os.environ.get("KVC_BIN_DIR"), str(Path(__file__).parents[3] / "build/release/bin")]
    for directory in filter(None, bins):
        program = Path(directory) / "kvcache-daemon"
        if program.exists():
            return str(program)
    return shutil.which("kvcache-daemon")


def storage(directory: str | Path) -> tuple[str, ...]:
    """Options of a daemon whose directory has a directory "store"."""
    return (f"nvme.paths={directory}/store", "nvme.limit=256MiB", "nvme.segment=1MiB")


class Daemon:
    """A daemon in a directory of its own; start and kill as often as wanted."""

    def __init__(self, directory: str, program: str) -> None:
        self.directory = Path(directory)
        self.program = program
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> str:
        return str(self.directory / "run" / "attach.sock")

    def start(self, *options: str) -> None:
        values = [
            f"runtime_dir={self.directory}/run",
            "memory.budget=1GiB",
            "host.limit=128MiB",
            "host.prefault=false",
            "index.blocks=16384",
            *options,
        ]
        command = [self.program]
        for value in values:
            command += ["--set", value]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log)
        for _ in range(600):
            if self.process.poll() is not None:
                break
            try:
                with kv.Session(socket=self.socket, must_connect=True, timeout_ms=1000):
                    return
            except kv.Error:
                time.sleep(0.02)
        raise AssertionError("the daemon does not answer: " + (self.directory / "log").read_text())

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture(scope="session")
def program() -> str:
    found = daemon_program()
    if found is None:
        pytest.skip("no kvcache-daemon: build it, or name it in KVCACHE_DAEMON")
    return found


@pytest.fixture(scope="session")
def daemon(program: str) -> Iterator[Daemon]:
    """One for all tests that leave it alone."""
    with tempfile.TemporaryDirectory(prefix="kvc-py-") as directory:
        one = Daemon(directory, program)
        (one.directory / "store").mkdir()
        one.start(*storage(directory), *DEVICES)
        yield one
        one.kill()


@pytest.fixture
def own_daemon(program: str) -> Iterator[Daemon]:
    """One for a test that kills it; not started."""
    with tempfile.TemporaryDirectory(prefix="kvc-py-") as directory:
        one = Daemon(directory, program)
        yield one
        one.kill()


@pytest.fixture
def session(daemon: Daemon) -> Iterator[kv.Session]:
    one = kv.Session(socket=daemon.socket, name="pytest", staging_bytes=1 << 20, must_connect=True)
    yield one
    one.close()


def open_ns(session: kv.Session, model: str, **more: object) -> kv.Namespace:
    """A namespace of one group of small blocks; each test has a model of its own."""
    groups = more.pop("groups", (kv.Group(BLOCK_TOKENS, BLOCK_BYTES),))
    return session.namespace(model=model, position="rope", groups=groups, **more)  # type: ignore[arg-type]


@pytest.fixture
def ns(session: kv.Session, request: pytest.FixtureRequest) -> kv.Namespace:
    return open_ns(session, request.node.name)


def wait_until(true: Callable[[], object]) -> None:
    """Until something holds; a minute is for ever."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.002)


def payload(i: int, size: int = BLOCK_BYTES) -> bytes:
    """Bytes of block i: no two alike, no two neighbours alike."""
    return bytes((i * 31 + j * 7 + j // 256) & 255 for j in range(size))
