# SPDX-License-Identifier: Apache-2.0
"""Copies between a session's memory and the engine's pages, wherever those are.

On a GPU the worker copies itself, on a stream of its own process: the daemon is given no memory of
the engine's, and needs no device. A copy has ended when a call returns, as in host memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kvcache_client import Error, Stale
from kvcache_client.vllm.plan import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcache_client import Device, Hold, Namespace, PageLayout, Session

__all__ = ["Copies"]

_KIND = "cuda"  # torch and libkvcache name a device alike: "cuda:<ordinal>"


class Copies:
    """Those of one session.

    Args:
        device: of the pages; None: host memory.
        beside: on a stream of their own, beside what the engine computes; else on its current one.
    """

    def __init__(
        self, session: Session, device: torch.device | None, *, beside: bool = False
    ) -> None:
        self._device = device
        self._on: Device | None = None
        self._beside: Any = None
        if device is None:
            return
        try:
            self._on = session.device(f"{_KIND}:{device.index}")
        except Error as error:
            raise Refused(f"KV caches on {device}: {error}") from None
        if beside:
            self._beside = torch.cuda.Stream(device)

    def close(self) -> None:
        """The session may open the device anew: it has one at a time. No copy is under way."""
        if self._on is not None:
            self._on.close()

    def behind(self) -> None:
        """In the engine's thread: later copies beside it wait for what it has begun until now."""
        if self._beside is not None:
            self._beside.wait_stream(torch.cuda.current_stream(self._device))

    def _stream(self) -> Any:
        return self._beside or torch.cuda.current_stream(self._device)

    def load(self, hold: Hold, layout: PageLayout, pages: list[list[int]]) -> None:
        """Blocks of a hold to their pages."""
        if self._on is None:
            hold.load_pages(layout, pages)
            return
        stream = self._stream()
        try:
            hold.load_pages(layout, pages, on=self._on, stream=stream.cuda_stream)
        finally:  # what was put there before an error is under way
            stream.synchronize()
        if not hold.check():
            raise Stale(0, "STALE", "the blocks went while they were copied")

    def stage(
        self,
        ns: Namespace,
        layout: PageLayout,
        group: int,
        pages: list[int],
        offsets: Sequence[int],
    ) -> None:
        """Blocks from their pages to staging, behind the kernels that write them."""
        if self._on is None:
            ns.stage_pages(layout, group, pages, offsets)
            return
        stream = self._stream()
        try:
            ns.stage_pages(layout, group, pages, offsets, on=self._on, stream=stream.cuda_stream)
        finally:
            stream.synchronize()
