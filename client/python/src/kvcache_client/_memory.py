# SPDX-License-Identifier: Apache-2.0
"""Memory of other libraries, without copies: arrays, tensors and an engine's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from kvcache_client import _kvc

if TYPE_CHECKING:
    from typing_extensions import Buffer, CapsuleType

__all__ = [
    "NO_PAGE",
    "DLPackObject",
    "Memory",
    "Numbers",
    "PageLayout",
    "Region",
    "as_bytes",
    "as_numbers",
]


@runtime_checkable
class DLPackObject(Protocol):
    """An object that gives its memory by DLPack: tensors of PyTorch, JAX, CuPy, NumPy arrays."""

    def __dlpack__(self, *, stream: None = None) -> CapsuleType: ...


# In a list of page numbers: not there. Nothing is copied to it, and zeros are stored for it.
NO_PAGE: int = _kvc.NO_PAGE

# What holds bytes of KV, and what holds page numbers or token ids.
Memory: TypeAlias = "Buffer | DLPackObject"
Numbers: TypeAlias = "Buffer | Sequence[int]"


class _Strided(NamedTuple):
    """Where the elements of an array lie; strides in bytes."""

    address: int
    itemsize: int
    read_only: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _strided(of: object) -> _Strided:
    try:
        return _Strided(*_kvc.buffer_info(cast("Buffer", of)))
    except (TypeError, ValueError, BufferError):
        if not isinstance(of, DLPackObject):
            raise
    address, itemsize, read_only, shape, strides = _kvc.dlpack_info(of.__dlpack__())
    return _Strided(address, itemsize, read_only, shape, tuple(s * itemsize for s in strides))


def _dense_bytes(a: _Strided, first: int) -> int:
    """Bytes of the dimensions from ``first`` on, which must lie without gaps, in C order."""
    size = a.itemsize
    for length, stride in reversed(list(zip(a.shape[first:], a.strides[first:], strict=True))):
        if length != 1 and stride != size:
            raise ValueError(
                f"the array of shape {a.shape} and strides {a.strides} bytes has gaps in "
                f"dimensions {first} and later: contiguous memory was expected"
            )
        size *= length
    return size


def _kept(of: object) -> object:
    """What keeps the memory where it is: an export of a buffer, which is not resized meanwhile."""
    try:
        export = memoryview(cast("Buffer", of))
    except (TypeError, ValueError, BufferError):
        return of
    if "O" in re.sub(":[^:]*:", "", export.format):  # without the names of fields
        raise TypeError(
            f"an array of Python objects (format {export.format!r}): its bytes are addresses, and "
            "mean nothing to others; an array of numbers or bytes was expected"
        )
    return export


def as_bytes(of: object, *, writable: bool = False) -> memoryview:
    """The bytes of an array without gaps, in place: shape [nbytes], uint8."""
    owner, a = _kept(of), _strided(of)
    if writable and a.read_only:
        raise ValueError("the memory is read-only: memory that can be written was expected")
    return _kvc.memory(owner, a.address, _dense_bytes(a, 0), not writable)


def as_numbers(of: object) -> Numbers:
    """Integers as the extension takes them: buffers as they are, tensors as lists."""
    tolist = getattr(of, "tolist", None)
    if tolist is not None and not isinstance(of, memoryview):
        try:
            memoryview(cast("Buffer", of)).release()
        except TypeError:
            return cast("Sequence[int]", tolist())
    return cast("Numbers", of)


class Region(NamedTuple):
    """The pages of one layer (or of its K or V alone): page ``p`` is at ``address + p * stride``.

    Attributes:
        address: of page 0, in this process's host memory, or on a device.
        stride: bytes from page to page.
        bytes: of a page.
        layer: for people.
    """

    address: int
    stride: int
    bytes: int
    layer: int = 0


@dataclass(frozen=True)
class PageLayout:
    """Paged KV memory of an engine, in host memory; for calls that name a device, there.

    A block is the bytes of its pages, region by region, in the order given: for each region the
    ``pages_per_block`` pages one after the other. Whoever shares blocks gives the same order.

    Attributes:
        groups: for each group of the namespace its regions.
        pages_max: page numbers are below it.
        pages_per_block: tokens of a block divided by tokens of a page: one number, or one a group.

    The memory must stay where it is while the layout is used. :meth:`of_tensors` keeps the tensors,
    and buffers from being resized; ``resize_`` of a torch tensor it cannot forbid.
    """

    groups: Sequence[Sequence[Region]]
    pages_max: int
    pages_per_block: int | Sequence[int] = 1
    keep: object = field(default=None, repr=False, compare=False)
    raw: _kvc.Layout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        per_block = self.pages_per_block
        counts = [per_block] * len(self.groups) if isinstance(per_block, int) else list(per_block)
        regions = [list(group) for group in self.groups]
        object.__setattr__(self, "raw", _kvc.Layout(regions, self.pages_max, counts))

    def per_block(self, group: int = 0) -> int:
        """Pages of a block of the group."""
        count = self.pages_per_block
        return count if isinstance(count, int) else count[group]

    def block_bytes(self, group: int = 0) -> int:
        """Bytes of a block of the group."""
        return self.per_block(group) * sum(r.bytes for r in self.groups[group])

    @classmethod
    def of_tensors(
        cls,
        groups: Sequence[Sequence[object]],
        *,
        page_dim: int = 0,
        pages_per_block: int | Sequence[int] = 1,
    ) -> PageLayout:
        """The layout of KV cache tensors: NumPy arrays, torch tensors on the CPU, buffers, DLPack.

        Args:
            groups: for each group its tensors, one a layer. Of shape ``[pages, ...]`` with
                ``page_dim`` 0; ``[2, pages, ...]`` (K and V apart) with ``page_dim`` 1: one region
                for each index before the pages. Behind ``page_dim`` memory has no gaps.
            page_dim: the dimension that counts pages.
            pages_per_block: as of the layout.
        """
        regions: list[list[Region]] = []
        keep: list[object] = []
        pages: list[int] = []
        for tensors in groups:
            regions.append([])
            for layer, tensor in enumerate(tensors):
                keep.append(_kept(tensor))
                a = _strided(tensor)
                if a.read_only:
                    raise ValueError(
                        f"layer {layer} is read-only: pages that can be written are needed"
                    )
                if not 0 <= page_dim < len(a.shape):
                    raise ValueError(f"page_dim {page_dim} of a tensor of shape {a.shape}")
                if 0 in a.shape:
                    raise ValueError(f"layer {layer}, of shape {a.shape}, has no pages")
                regions[-1].extend(_regions(a, page_dim, layer))
                pages.append(a.shape[page_dim])
        return cls(regions, min(pages, default=0), pages_per_block, keep=keep)


def _regions(a: _Strided, page_dim: int, layer: int) -> Iterator[Region]:
    size, stride = _dense_bytes(a, page_dim + 1), a.strides[page_dim]
    if stride < 0:
        raise ValueError(f"strides {a.strides}: pages in ascending order were expected")
    for index in product(*(range(n) for n in a.shape[:page_dim])):
        at = a.address + sum(i * s for i, s in zip(index, a.strides[:page_dim], strict=True))
        yield Region(at, stride, size, layer)
