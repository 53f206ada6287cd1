# SPDX-License-Identifier: Apache-2.0
"""The connector with a defect: of each order to store one block is changed before its commit."""

from __future__ import annotations

from typing import Any

from kvcache_client.vllm import KVCacheDaemonConnector


class Corrupting(KVCacheDaemonConnector):
    """Shuffles the bytes of one block: its numbers are others, and as large as before."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        if self._worker is not None:
            self._stage = self._worker.stage
            self._worker.stage = self._wrong  # type: ignore[method-assign]

    def _wrong(self, group: int, pages: list[int], offsets: list[int]) -> None:
        self._stage(group, pages, offsets)
        size = self.worker.plan.groups[group].block_bytes
        victim = offsets[sum(pages) % len(offsets)]
        view = self.worker.link.session.staging
        assert view is not None
        with view:
            half = bytes(view[victim + size // 2 : victim + size])
            view[victim + size // 2 : victim + size] = bytes(view[victim : victim + size // 2])
            view[victim : victim + size // 2] = half
