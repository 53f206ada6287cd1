# SPDX-License-Identifier: Apache-2.0
"""Pages on a device: an emulated one, and in a process of its own one of the fake CUDA driver."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import DEVICE, DEVICES, Daemon, daemon_program, open_ns, payload, storage, wait_until
from device_rig import EMULATED, Paged, cuda, read, stream, sync

import kvcache_client as kv

TOKENS, BLOCKS = 16, 4
SIZE = Paged.LAYERS * 2 * Paged.PAGE
OUT, INTO = [7, 2, 11, 0, 5, 9, 1, 3], [23, 14, 20, 8, 12, 22, 6, 15]

emulated = pytest.mark.skipif(not EMULATED, reason="the emulated device breaks on demand")
on_cuda = pytest.mark.skipif(EMULATED, reason="an emulated device has no streams")


def is_up(session: kv.Session) -> bool:
    try:
        return session.stats()["device0.up"] == 1
    except kv.Error:
        return False


def stat(session: kv.Session, name: str) -> int:
    return session.stats()[f"device0.{name}"]


class Worker:
    """A session with pages on the device, and a namespace of their blocks."""

    def __init__(self, daemon: Daemon, model: str, timeout_ms: int = 0) -> None:
        self.session = kv.Session(
            socket=daemon.socket, staging_bytes=1 << 20, must_connect=True, timeout_ms=timeout_ms
        )
        wait_until(lambda: is_up(self.session))
        self.device = self.session.device(DEVICE)
        self.paged = Paged(self.device)
        self.pool = self.pool_of(self.device, self.paged)
        self.ns = open_ns(self.session, model, groups=(kv.Group(TOKENS, SIZE),))
        self.keys = self.ns.hash_chain(range(BLOCKS * TOKENS))

    @staticmethod
    def pool_of(device: kv.Device, paged: Paged) -> kv.Pool:
        return device.pool(paged.layout, [paged.memory])

    def compute(self) -> None:
        for i in range(BLOCKS):
            self.paged.put(OUT[2 * i : 2 * i + 2], payload(i, SIZE))

    def store(self, *, durable: bool = False) -> None:
        """Once it is there: a device that was just opened may be busy with its first requests."""
        self.compute()
        assert self.ns.put(self.pool, self.keys, BLOCKS * TOKENS, [OUT], durable=durable).tokens

    def get(self, from_tokens: int = 0) -> int:
        return self.ns.get(self.pool, self.keys, BLOCKS * TOKENS, [INTO], from_tokens=from_tokens)

    def check(self, first: int = 0) -> None:
        for i in range(BLOCKS):
            pages = INTO[2 * i : 2 * i + 2]
            wanted = payload(i, SIZE) if i >= first else b"\xee" * SIZE
            assert self.paged.get(pages) == wanted, i


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.fixture
def worker(daemon: Daemon, name: str) -> Iterator[Worker]:
    one = Worker(daemon, name)
    yield one
    one.session.close()


@pytest.fixture
def filled(daemon: Daemon, name: str) -> Iterator[Worker]:
    """One that has nothing, beside one that has stored: blocks are in host memory."""
    first = Worker(daemon, name)
    first.store()
    first.session.close()
    one = Worker(daemon, name)
    yield one
    one.session.close()


# ---- bytes, from each tier


@pytest.mark.parametrize("skipped", [0, 2])
def test_from_pages_by_host_memory_to_pages(filled: Worker, skipped: int) -> None:
    before = stat(filled.session, "copy_bytes")
    assert filled.get(skipped * TOKENS) == BLOCKS * TOKENS
    filled.check(skipped)
    assert stat(filled.session, "copy_bytes") - before == (BLOCKS - skipped) * SIZE


def test_what_host_memory_has_was_stored_whole(filled: Worker) -> None:
    with filled.ns.acquire(filled.keys, BLOCKS * TOKENS) as hold:
        assert hold.groups == ((0, BLOCKS),)
        assert [bytes(hold.block(0, i)) for i in range(BLOCKS)] == [
            payload(i, SIZE) for i in range(BLOCKS)
        ]
        assert hold.device(0, 0) == 0


def test_from_storage_to_pages(own_daemon: Daemon, name: str) -> None:
    (own_daemon.directory / "store").mkdir()
    options = (*storage(own_daemon.directory), *DEVICES)
    own_daemon.start(*options)
    first = Worker(own_daemon, name)
    first.store(durable=True)
    own_daemon.kill()
    own_daemon.start(*options)
    second = Worker(own_daemon, name)
    for worker in (second, first):  # the first one's pool is made known again by itself
        wait_until(partial(is_up, worker.session))
        wait_until(worker.get)
        worker.check()
        worker.session.close()


def test_blocks_that_the_device_has(filled: Worker) -> None:
    device = filled.device
    fills, hits = (stat(filled.session, s) for s in ("fills", "hits"))
    with filled.ns.acquire(filled.keys, BLOCKS * TOKENS, on=device) as hold:
        at = [hold.device(0, i) for i in range(BLOCKS)]
        assert all(at)
        assert [read(a, SIZE) for a in at] == [payload(i, SIZE) for i in range(BLOCKS)]
        view = hold.dlpack(0, 0)
        assert view.__dlpack_device__() == ((1, 0) if EMULATED else (2, 0))
        with pytest.raises(BufferError, match="and not on"):
            view.__dlpack__(dl_device=(13, 0))
        del view
        for look in (lambda: hold.block(0, 0), lambda: hold.read_into(0, bytearray(BLOCKS * SIZE))):
            with pytest.raises(BufferError, match="on the device alone"):
                look()
    with filled.ns.acquire(filled.keys, BLOCKS * TOKENS, on=device) as hold:
        assert [hold.device(0, i) for i in range(BLOCKS)] == at
        hold.load_pages(filled.paged.layout, [INTO], on=device, stream=stream())
        sync()
        assert hold.check()
    filled.check()
    assert stat(filled.session, "fills") - fills == BLOCKS
    assert stat(filled.session, "hits") > hits


# ---- the worker's own copies


def test_the_worker_copies_itself(worker: Worker) -> None:
    worker.compute()
    layout, device = worker.paged.layout, worker.device
    offsets = [i * 4096 for i in range(BLOCKS)]
    assert worker.session.staging is not None
    worker.ns.stage_pages(layout, 0, OUT, offsets, on=device, stream=stream())
    sync()
    assert not any(worker.ns.store(0, None, worker.keys, None, offsets=offsets))
    with worker.ns.acquire(worker.keys, BLOCKS * TOKENS) as hold:
        hold.load_pages(layout, [INTO], on=device, stream=stream())
        sync()
        assert hold.check()
    worker.check()


# ---- memory that the caller has


def test_memory_of_the_callers(worker: Worker) -> None:
    if EMULATED:
        own = ctypes.create_string_buffer(4096)
        with pytest.raises(kv.Error, match="exports memory of kvc_mem_alloc alone") as caught:
            worker.device.register(ctypes.addressof(own), 4096)
        assert caught.value.name == "EOPNOTSUPP"
        return
    size = Paged.LAYERS * Paged.PAGES * Paged.PAGE
    at = cuda().alloc(size)
    regions = [
        kv.Region(at + i * Paged.PAGES * Paged.PAGE, Paged.PAGE, Paged.PAGE, i)
        for i in range(Paged.LAYERS)
    ]
    worker.store()
    with worker.device.register(at, size) as memory:
        assert memory.address == at
        layout = kv.PageLayout([regions], Paged.PAGES, 2)
        with worker.device.pool(layout, [memory]) as pool:
            assert worker.ns.get(pool, worker.keys, BLOCKS * TOKENS, [INTO]) == BLOCKS * TOKENS
    got = b"".join(
        read(r.address + page * Paged.PAGE, Paged.PAGE) for r in regions for page in INTO[:2]
    )
    assert got == payload(0, SIZE)


# ---- words and streams


def test_words_are_told_and_waited_for(filled: Worker) -> None:
    device = filled.device
    device.signal(0, 5, stream=stream())
    wait_until(lambda: device.word(0) == 5)
    device.wait(0, 4, stream=stream())
    tokens = BLOCKS * TOKENS
    got = filled.ns.get(filled.pool, filled.keys, tokens, [INTO], after=(0, 5), ready=(1, 100))
    assert got == tokens
    assert device.word(1) == 100 + Paged.LAYERS
    filled.check()


def test_wrong_words_are_named(worker: Worker) -> None:
    for call in (
        lambda: worker.device.signal(kv.WORDS, 1),
        lambda: worker.device.word(kv.WORDS),
        lambda: worker.ns.put(worker.pool, worker.keys, 64, [OUT], after=(kv.WORDS, 1)),
        lambda: worker.ns.put(worker.pool, worker.keys, 64, [OUT], after=(2**32 - 1, 1)),
    ):
        with pytest.raises(kv.BadArgument, match=f"0 to {kv.WORDS - 1} were expected"):
            call()
    host = kv.PageLayout([[kv.Region(4096, 4096, SIZE // 2)]], 24, 2)
    with pytest.raises(ValueError, match="no words"):
        worker.ns.get(host, worker.keys, 64, [OUT], after=(0, 1))
    with pytest.raises(ValueError, match="no words"):
        worker.ns.put(host, worker.keys, 64, [OUT], after=(0, 1))
    with pytest.raises(ValueError, match="no words"):
        worker.ns.store_pages(host, 0, None, worker.keys, OUT, after=(0, 1))
    with pytest.raises(TypeError, match=r"\(number, value\)"):
        worker.ns.put(worker.pool, worker.keys, 64, [OUT], after=5)  # type: ignore[arg-type]


def test_what_is_never_signalled_is_never_read(daemon: Daemon, name: str) -> None:
    worker = Worker(daemon, name, timeout_ms=300)
    worker.compute()
    worker.device.signal(2, 1, stream=stream())
    got = worker.ns.store_pages(worker.pool, 0, None, worker.keys, OUT, after=(2, 2))
    assert got[0] == kv.Status.TIMEOUT
    assert kv.Status.OK not in got
    assert worker.ns.lookup(worker.keys, BLOCKS * TOKENS).tokens == 0
    worker.session.close()


@on_cuda
def test_a_store_waits_for_the_stream(worker: Worker, session: kv.Session) -> None:
    """What the kernels write before the signal is what is stored; the GIL is free meanwhile."""
    worker.paged.fill(range(23, 24), 0x55)
    worker.device.signal(3, 0, stream=stream())
    control().hold(1)
    for layer in range(Paged.LAYERS):
        for page in OUT[:2]:
            to, source = worker.paged.address(layer, page), worker.paged.address(layer, 23)
            cuda().run("cuMemcpyAsync", to, source, Paged.PAGE, cuda().stream)
    worker.device.signal(3, 1, stream=stream())
    got: list[bytes] = []
    key = worker.keys[:32]
    thread = threading.Thread(
        target=lambda: got.append(
            worker.ns.store_pages(worker.pool, 0, None, key, OUT[:2], after=(3, 1))
        )
    )
    other = open_ns(session, "test_a_store_waits_for_the_stream", groups=worker.ns.groups)
    assert other.lookup(key, TOKENS).groups[0].reason == kv.Miss.NEVER
    thread.start()
    wait_until(lambda: other.lookup(key, TOKENS).groups[0].reason == kv.Miss.PENDING)
    control().hold(0)
    thread.join()
    assert got == [b"\0"]
    with worker.ns.acquire(key, TOKENS) as hold:
        assert bytes(hold.block(0, 0)) == b"\x55" * SIZE


@on_cuda
def test_a_stream_under_capture_is_refused(filled: Worker) -> None:
    layout, device = filled.paged.layout, filled.device
    assert filled.session.staging is not None
    with filled.ns.acquire(filled.keys, BLOCKS * TOKENS) as hold:
        control().capture(1)
        try:
            for at in (stream(), 0):
                on: dict[str, Any] = {"on": device, "stream": at}
                for call in (
                    partial(hold.load_pages, layout, [INTO], **on),
                    partial(filled.ns.stage_pages, layout, 0, OUT[:2], [0], **on),
                    partial(device.signal, 0, 1, stream=at),
                    partial(device.wait, 0, 1, stream=at),
                ):
                    with pytest.raises(kv.BadArgument, match="captured into a graph"):
                        call()
        finally:
            control().capture(0)
        hold.load_pages(layout, [INTO], on=device, stream=stream())
        sync()
    filled.check()


# ---- a device that is lost


@emulated
def test_a_lost_device_is_named(own_daemon: Daemon, name: str) -> None:
    fault = own_daemon.directory / "fault"
    fault.write_text("")
    own_daemon.start(*DEVICES, f"hbm.emu_fault={fault}")
    worker = Worker(own_daemon, name)
    worker.store()
    fault.write_text("lost")
    wait_until(lambda: worker.get() == 0)
    wait_until(lambda: not is_up(worker.session))
    other = worker.ns.hash_chain(range(1000, 1000 + TOKENS))
    with pytest.raises(kv.Error) as caught:
        worker.ns.store_pages(worker.pool, 0, None, other, OUT[:2])
    assert caught.value.name == "TIER"
    with pytest.raises(kv.Error) as caught:
        Worker.pool_of(worker.device, Paged(worker.device))
    assert caught.value.name == "TIER"
    with worker.ns.acquire(worker.keys, BLOCKS * TOKENS, on=worker.device) as hold:
        assert [hold.device(0, i) for i in range(BLOCKS)] == [0] * BLOCKS
        assert bytes(hold.block(0, 1)) == payload(1, SIZE)
    worker.session.close()


def test_no_such_device_is_said(session: kv.Session) -> None:
    for wrong, says in (("emu", "emu"), ("GPU-none", "GPU|driver|UUID"), ("host", "PageLayout")):
        with pytest.raises((kv.Error, ValueError), match=says):
            session.device(wrong)
    with session.device("emu:7") as device:  # the daemon has none of this number
        memory = device.alloc(4096)
        layout = kv.PageLayout([[kv.Region(memory.address, 512, 512)]], 8)
        with pytest.raises(kv.Error) as caught:
            device.pool(layout, [memory])
        assert caught.value.name == "TIER"


# ---- ownership


def test_wrong_pools_are_named(worker: Worker, session: kv.Session) -> None:
    paged, device = worker.paged, worker.device
    far = kv.PageLayout([[kv.Region(paged.memory.address - 512, 512, 512)]], 8)
    beyond = kv.PageLayout([[kv.Region(paged.memory.address + 512, 512, 512)]], 10**6)
    for call, says in (
        (lambda: device.pool(far, [paged.memory]), "in none of the pool's 1 memories"),
        (lambda: device.pool(paged.layout, []), "in none of the pool's 0 memories"),
        (lambda: device.pool(beyond, [paged.memory]), "beyond the"),
        (lambda: worker.ns.put(worker.pool, worker.keys, 64, [[0]]), "1 page numbers"),
        (lambda: worker.ns.get(worker.pool, worker.keys, 64, [[0]]), "1 page numbers"),
        (lambda: worker.ns.get(worker.pool, worker.keys, 64, [[99] * 8]), "is 99"),
        (lambda: worker.session.device(DEVICE), "opened device"),
    ):
        with pytest.raises(ValueError, match=says):
            call()
    elsewhere = open_ns(session, "elsewhere", groups=(kv.Group(TOKENS, SIZE),))
    for wrong in (
        lambda: elsewhere.put(worker.pool, worker.keys, 64, [OUT]),
        lambda: elsewhere.acquire(worker.keys, 64, on=device),
    ):
        with pytest.raises(kv.BadArgument, match="another session"):
            wrong()
    with session.device(DEVICE) as second, pytest.raises(kv.BadArgument, match="another device"):
        second.pool(paged.layout, [paged.memory])
    with pytest.raises(TypeError, match=r"Session\.device"):
        worker.ns._raw.acquire(worker.keys, 64, 0, 0, 0, 0, None, 5)  # type: ignore[arg-type]


def test_what_is_closed_is_said(filled: Worker) -> None:
    device, pool, memory = filled.device, filled.pool, filled.paged.memory
    with filled.ns.acquire(filled.keys, BLOCKS * TOKENS, on=device) as hold:
        at = hold.device(0, 0)
        memory.close()  # the pool has it still
        assert filled.get() == BLOCKS * TOKENS
        filled.check()
        with pytest.raises(kv.BadArgument, match="mem is NULL"):
            device.pool(filled.paged.layout, [memory])
        pool.close()
        pool.close()
        with pytest.raises(ValueError, match="the pool is closed"):
            filled.get()
        device.close()
        device.close()
        for call in (
            lambda: device.alloc(4096),
            lambda: device.signal(0, 1),
            lambda: device.word(0),
            lambda: hold.load_pages(filled.paged.layout, [INTO], on=device),
            lambda: filled.ns.acquire(filled.keys, 64, on=device),
        ):
            with pytest.raises(ValueError, match="the device is closed"):
                call()
        if EMULATED:  # what is held stays where it is
            assert read(at, SIZE) == payload(0, SIZE)
    with filled.session.device(DEVICE) as again:
        kept = again.alloc(4096)
        filled.session.close()
        with pytest.raises(ValueError, match="session is closed"):
            again.alloc(4096)
    kept.close()


def test_a_child_leaves_its_parents_device_alone(worker: Worker) -> None:
    worker.store()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            worker.get()
        except kv.Denied:
            worker.pool.close()
            worker.device.close()
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert worker.get() == BLOCKS * TOKENS
    worker.check()


# ---- the same on the fake CUDA driver


class Control(ctypes.Structure):
    """struct fake_cuda of tests/gpu/fake_cuda.h."""

    _fields_ = (
        ("live", ctypes.c_void_p),
        ("calls", ctypes.c_void_p),
        ("arm", ctypes.c_void_p),
        ("hold", ctypes.CFUNCTYPE(None, ctypes.c_int)),
        ("hang", ctypes.c_void_p),
        ("capture", ctypes.CFUNCTYPE(None, ctypes.c_int)),
    )


def control() -> Control:
    return Control.in_dll(cuda().library, "fake_cuda_control")


@emulated
def test_on_the_fake_cuda_driver() -> None:
    program = daemon_program()
    driver = Path(program or "none").parent.parent / "fake-cuda"
    if not (driver / "libcuda.so.1").exists():
        pytest.skip("no fake CUDA driver: it is built where CUDA's headers are")
    more = {"KVC_TEST_DEVICE": "cuda:0", "FAKE_CUDA_DELAY_US": "20", "FAKE_CUDA_TWINS": "1"}
    env = {**os.environ, **more, "LD_LIBRARY_PATH": str(driver)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "passed" in ran.stdout
