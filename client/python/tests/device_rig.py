# SPDX-License-Identifier: Apache-2.0
"""Bytes on a device, as an engine's kernels would write and read them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from conftest import DEVICE

import kvcache_client as kv
from kvcache_client import _kvc

EMULATED = DEVICE.startswith("emu:")


class Cuda:
    """The driver as any program has it: functions by name and version."""

    CALLS: tuple[tuple[str, int, tuple[Any, ...]], ...] = (
        ("cuDevicePrimaryCtxRetain", 7000, (ctypes.c_void_p, ctypes.c_int)),
        ("cuCtxSetCurrent", 4000, (ctypes.c_void_p,)),
        ("cuStreamCreateWithPriority", 5050, (ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)),
        (
            "cuMemcpyAsync",
            4000,
            (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p),
        ),
        ("cuStreamQuery", 2000, (ctypes.c_void_p,)),
        ("cuMemAlloc", 3020, (ctypes.c_void_p, ctypes.c_size_t)),
    )

    def __init__(self) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        get = library.cuGetProcAddress_v2
        number, pointer = ctypes.c_int, ctypes.c_void_p
        get.argtypes = (ctypes.c_char_p, pointer, number, ctypes.c_uint64, pointer)
        self.library = library
        self.call: dict[str, Callable[..., int]] = {}
        for name, version, arguments in self.CALLS:
            at = ctypes.c_void_p()
            assert get(name.encode(), ctypes.byref(at), version, 0, None) == 0, name
            assert at.value
            self.call[name] = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(at.value)
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.run("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.run("cuCtxSetCurrent", context)
        self.run("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
        self.stream = stream.value or 0

    def run(self, name: str, *arguments: Any) -> None:
        code = self.call[name](*arguments)
        assert code == 0, (name, code)

    def alloc(self, size: int) -> int:
        at = ctypes.c_uint64()
        self.run("cuMemAlloc", ctypes.byref(at), size)
        return at.value

    def sync(self) -> None:
        while (code := self.call["cuStreamQuery"](self.stream)) == 600:  # not ready
            time.sleep(0)
        assert code == 0, code


_cuda: Cuda | None = None


def cuda() -> Cuda:
    """Of this process; the library has initialised the driver."""
    global _cuda
    _cuda = _cuda or Cuda()
    return _cuda


def stream() -> int:
    """The worker's stream."""
    return 0 if EMULATED else cuda().stream


def sync() -> None:
    """All that is on the stream has been executed."""
    if not EMULATED:
        cuda().sync()


def write(address: int, data: bytes) -> None:
    """Bytes to the device."""
    if EMULATED:
        _kvc.memory(None, address, len(data), False)[:] = data
        return
    given = ctypes.create_string_buffer(data, len(data))
    cuda().run("cuMemcpyAsync", address, ctypes.addressof(given), len(data), cuda().stream)
    sync()


def read(address: int, size: int) -> bytes:
    """Bytes of the device."""
    if EMULATED:
        return bytes(_kvc.memory(None, address, size, True))
    into = ctypes.create_string_buffer(size)
    cuda().run("cuMemcpyAsync", ctypes.addressof(into), address, size, cuda().stream)
    sync()
    return into.raw


class Paged:
    """Paged KV memory of an engine: layers, each with a region of pages, in one memory."""

    LAYERS, PAGES, PAGE = 3, 24, 512

    def __init__(self, device: kv.Device) -> None:
        self.memory = device.alloc(self.LAYERS * self.PAGES * self.PAGE)
        self.layout = kv.PageLayout(
            [
                [
                    kv.Region(self.address(layer, 0), self.PAGE, self.PAGE, layer)
                    for layer in range(self.LAYERS)
                ]
            ],
            self.PAGES,
            2,
        )
        self.block_bytes = self.layout.block_bytes()
        self.fill(range(self.PAGES), 0xEE)

    def address(self, layer: int, page: int) -> int:
        return self.memory.address + (layer * self.PAGES + page) * self.PAGE

    def fill(self, pages: range, byte: int) -> None:
        for page in pages:
            for layer in range(self.LAYERS):
                write(self.address(layer, page), bytes([byte]) * self.PAGE)

    def put(self, pages: list[int], block: bytes) -> None:
        """A block into its two pages."""
        for layer in range(self.LAYERS):
            for page in pages:
                write(self.address(layer, page), block[: self.PAGE])
                block = block[self.PAGE :]

    def get(self, pages: list[int]) -> bytes:
        return b"".join(
            read(self.address(layer, page), self.PAGE)
            for layer in range(self.LAYERS)
            for page in pages
        )
