# SPDX-License-Identifier: Apache-2.0
"""KV caches on a GPU: tensors that say so, backed by the emulated device. No GPU is needed.

Every line of the connector's path runs; that CUDA's streams keep the order is the library's part,
and tested on the fake driver (client/python/tests/test_device.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes import Mini, Request, plan
from kvcache_client import Hold, Namespace
from kvcache_client.vllm import device
from kvcache_client.vllm.pages import Pages
from kvcache_client.vllm.plan import Refused
from rig import Daemon, tokens

GPU = SimpleNamespace(type="cuda", index=0)
ENGINES, BESIDE = 7, 8  # streams
IDS = tokens(400, "gpu")


class Tensor:
    """Of a CUDA device, as far as the connector looks at it."""

    device = GPU

    def __init__(self, of: torch.Tensor) -> None:
        self.of, self.shape = of, of.shape
        self.stride, self.element_size, self.data_ptr = of.stride, of.element_size, of.data_ptr


class Stream:
    """torch.cuda.Stream."""

    log: list[tuple[str, int]]

    def __init__(self, where: object, number: int = BESIDE) -> None:
        assert where is GPU
        self.cuda_stream = number

    def synchronize(self) -> None:
        self.log.append(("sync", self.cuda_stream))

    def wait_stream(self, other: Stream) -> None:
        self.log.append(("behind", other.cuda_stream))


class CudaMini(Mini):
    """One whose pages are on a GPU."""

    tensor = staticmethod(Tensor)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was done with streams, in order; on the emulated device copies end at once."""
    made: list[tuple[str, int]] = []
    monkeypatch.setattr(Stream, "log", made, raising=False)
    monkeypatch.setattr(device, "_KIND", "emu")
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda where: Stream(where, ENGINES))
    for what, of in (("load_pages", Hold), ("stage_pages", Namespace)):
        monkeypatch.setattr(of, what, logged(made, what, getattr(of, what)))
    return made


def logged(log: list[tuple[str, int]], what: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, on: object, stream: int) -> Any:
        assert on is not None
        log.append((what, stream))
        return call(*arguments, on=on, stream=stream)

    return run


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.close()


def test_blocks_go_from_gpu_to_gpu(daemon: Daemon, log: list[tuple[str, int]]) -> None:
    first = CudaMini(daemon.socket)
    first.run(Request("a", IDS))
    assert log == [("stage_pages", ENGINES), ("sync", ENGINES)]
    first.close()
    for inline, wanted in (
        (1 << 20, [("load_pages", ENGINES), ("sync", ENGINES)]),
        (0, [("behind", ENGINES), ("load_pages", BESIDE), ("sync", BESIDE)]),
    ):
        log.clear()
        second, again = CudaMini(daemon.socket, inline_bytes=inline), Request("b", IDS)
        assert second.load(again) == (384, False)
        second.check(again, 0, 384)
        assert log == wanted
        second.close()


@pytest.mark.parametrize("inline", [1 << 20, 0])
def test_pages_are_registered_again(
    daemon: Daemon, log: list[tuple[str, int]], inline: int
) -> None:
    """Other tensors on the same device: both sessions open it anew."""
    first = CudaMini(daemon.socket, inline_bytes=inline)
    for name in ("a", "b", "c"):
        first.run(Request(name, IDS))
        first.register()
    again = Request("d", IDS)
    assert first.load(again) == (384, False)
    first.check(again, 0, 384)
    first.close()


def test_what_fails_is_waited_for_and_computed(
    daemon: Daemon, log: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that a stream under capture refuses, blocks that go meanwhile: no load, no crash."""
    first = CudaMini(daemon.socket)
    first.run(Request("a", IDS))
    monkeypatch.setattr(Hold, "check", lambda hold: False)
    log.clear()
    assert first.load(Request("b", IDS)) == (384, True)
    assert log == [("load_pages", ENGINES), ("sync", ENGINES)]
    first.close()


def test_devices_are_refused_by_name(log: list[tuple[str, int]]) -> None:
    made = plan()
    cpu = torch.zeros(4, 96, dtype=torch.uint8)
    other = Tensor(cpu)
    other.device = SimpleNamespace(type="xpu", index=0)
    with pytest.raises(Refused, match=r"0\.0 is on .*xpu.*CUDA"):
        Pages(made, {"0.0": other, "0.1": cpu}, 4)
    with pytest.raises(Refused, match="one device a worker"):
        Pages(made, {"0.0": Tensor(cpu), "0.1": cpu}, 4)
    assert Pages(made, {"0.0": cpu, "0.1": cpu}, 4).device is None


def test_a_gpu_without_a_driver_is_refused(
    daemon: Daemon, log: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_KIND", "cuda")
    monkeypatch.setattr(GPU, "index", 99)
    with pytest.raises(Refused, match=r"KV caches on .*ENODEV"):
        CudaMini(daemon.socket)
