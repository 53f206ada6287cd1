# SPDX-License-Identifier: Apache-2.0
"""Devices: an engine's paged KV memory on a GPU, and blocks that the daemon keeps there.

Addresses and streams are numbers: ``tensor.data_ptr()``, ``torch.cuda.Stream.cuda_stream`` (0: the
default stream). An emulated device (``"emu:0"``) is shared host memory, whose addresses are
this process's; it has no streams, and all is done when a call returns. A stream that is being
captured into a graph is refused (:class:`BadArgument`). What the daemon's first device does:
``session.stats("device0.")``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from kvcache_client import _kvc

if TYPE_CHECKING:
    from typing import Self

    from kvcache_client._memory import PageLayout

__all__ = ["WORDS", "Device", "DeviceMemory", "Pool", "raw_of"]

# Words of a session, which streams and the daemon write and wait for: numbers 0 to WORDS - 1.
WORDS: int = _kvc.WORDS


class _Closing:
    """Closed by ``with``, by ``close()``, with the session, or when nobody has it any more."""

    _raw: _kvc.Device | _kvc.Memory | _kvc.Pool

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it, once nothing touches its pages any more. Again: nothing happens."""
        self._raw.close()


class DeviceMemory(_Closing):
    """Memory on a device that the daemon may be given.

    Attributes:
        address: of its first byte, on the device.
        bytes: its size.

    :meth:`Device.alloc`'s memory goes when it is closed (or with the last pool in it); that of
    :meth:`Device.register` stays its owner's, and must be there as long.
    """

    _raw: _kvc.Memory

    def __init__(self, raw: _kvc.Memory, address: int, size: int) -> None:
        self._raw = raw
        self.address = address
        self.bytes = size


class Pool(_Closing):
    """Pages on a device that the daemon reads and writes (:meth:`Device.pool`).

    It goes where a :class:`PageLayout` does: ``Namespace.put``, ``get``, ``store_pages``. When the
    session reconnects it is made known again by itself.

    Attributes:
        layout: of the pages.
    """

    _raw: _kvc.Pool

    def __init__(self, raw: _kvc.Pool, layout: PageLayout) -> None:
        self._raw = raw
        self.layout = layout

    @property
    def raw(self) -> _kvc.Pool:
        """As the extension takes it."""
        return self._raw


class Device(_Closing):
    """The worker's side of a device (``Session.device``); its pools and memories close with it.

    Any thread may call; calls of one session wait for each other.
    """

    _raw: _kvc.Device

    def __init__(self, raw: _kvc.Device) -> None:
        self._raw = raw

    def alloc(self, size: int) -> DeviceMemory:
        """Memory of ``size`` bytes that can be given to the daemon, whatever the device."""
        return DeviceMemory(*self._raw.alloc(size), size)

    def register(self, address: int, size: int) -> DeviceMemory:
        """Memory that the caller has (cudaMalloc, PyTorch).

        Raises:
            Error: ``EOPNOTSUPP``: it cannot be given away. The worker copies itself then:
                ``Hold.load_pages`` and ``Namespace.stage_pages`` with ``on=``.
        """
        return DeviceMemory(self._raw.register(address, size), address, size)

    def pool(self, layout: PageLayout, memories: Sequence[DeviceMemory]) -> Pool:
        """Gives the daemon pages.

        Args:
            layout: whose regions have addresses on the device (``Region(tensor.data_ptr(), ...)``).
            memories: in which they lie.

        Raises:
            Error: ``TIER``: the daemon has no such device, or it is out.
            Limit: the device has no memory left to import it; too many pools.
        """
        return Pool(self._raw.pool(layout.raw, tuple(m._raw for m in memories)), layout)

    def signal(self, word: int, value: int, *, stream: int = 0) -> None:
        """Behind what is on the stream: the word becomes ``value`` (below 2**63).

        Raises:
            Down: no daemon is there to share the words with.
        """
        self._raw.signal(word, value, stream)

    def wait(self, word: int, value: int, *, stream: int = 0) -> None:
        """What follows on the stream waits until the word is ``value`` or more.

        On an emulated device the caller waits, for the session's timeout at most (Timeout).
        """
        self._raw.wait(word, value, stream)

    def word(self, word: int) -> int:
        """The word's value now. Words are zero after a reconnect.

        Raises:
            Down: as of :meth:`signal`.
        """
        return self._raw.word(word)


def raw_of(device: Device | None) -> _kvc.Device | None:
    """The device as the extension takes it; None: host memory."""
    return None if device is None else device._raw
