# SPDX-License-Identifier: Apache-2.0
"""A storage backend of HiCache: pages of SGLang's host pool, straight to and from the daemon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolTransferResult

from kvcache_client import Error, PageLayout
from kvcache_client.sglang.pages import Options, Pages, good, keys_of, logger

__all__ = ["KVCacheDaemonStorage"]

# Where pages are in a host pool's buffer: dimension, and whether it counts tokens instead.
_MHA = {
    "layer_first": (2, True),
    "page_first": (1, True),
    "page_first_direct": (1, False),
    "page_head": (1, False),
}
_MLA = {"layer_first": (1, True), "page_first": (0, True), "page_first_direct": (0, False)}


class KVCacheDaemonStorage(HiCacheStorage):  # type: ignore[misc]
    """``--hicache-storage-backend dynamic``, with ``interface_v1`` 1."""

    def __init__(self, storage_config: Any, _kwargs: Any = None) -> None:
        self.config = storage_config
        self.options = Options.of(storage_config.extra_config)
        self.pages: Pages | None = None
        self._refused_pools: set[str] = set()
        for name in ("attn_cp_size", "dcp_size"):
            if getattr(storage_config, name, 1) > 1:
                raise ValueError(f"{name} above 1: this backend knows tensor and pipeline ranks")
        if storage_config.should_split_heads:
            raise ValueError("tp_lcm_size: pages are stored whole, one of each rank; leave it out")

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """The pool's buffer becomes a layout of pages, and its shape the namespace."""
        super().register_mem_pool_host(mem_pool_host)
        c, pool = self.config, mem_pool_host
        layouts = _MLA if c.is_mla_model else _MHA
        if pool.layout not in layouts:
            raise ValueError(
                f"a host pool of layout {pool.layout!r}: known are {', '.join(layouts)} "
                "(--hicache-mem-layout)"
            )
        dim, counts_tokens = layouts[pool.layout]
        buffer = pool.kv_buffer
        if isinstance(buffer, (list, tuple)):
            raise ValueError(f"a host pool of {len(buffer)} buffers: one was expected")
        if counts_tokens:
            buffer = buffer.unflatten(dim, (-1, pool.page_size))
        self._layout = PageLayout.of_tensors([[buffer]], page_dim=dim)
        self.pages = Pages(
            self.options,
            model=c.model_name or "",
            page_tokens=pool.page_size,
            page_bytes=self._layout.block_bytes(),
            shape=(0, 1) if c.is_mla_model else (c.tp_rank, c.tp_size),
            layout=f"sglang hicache {pool.layout}",
            dtype=str(pool.dtype).removeprefix("torch."),
            stage=f"pp={c.pp_rank}/{c.pp_size}",
        )

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """Leading pages of ``keys`` that are cached."""
        return self.pages.cached(keys) if self.pages and keys else 0

    def batch_exists_v2(
        self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None
    ) -> Any:
        """The same; a hit that needs another pool too is none."""
        if pool_transfers:
            self._refuse_pools(pool_transfers)
            return PoolTransferResult.empty()
        found = self.batch_exists(keys)
        return PoolTransferResult(found, {}, list(range(1, found + 1)))

    def batch_get_v1(
        self, keys: list[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        """Copies cached pages into the host pool; which of them came."""
        if self.pages is None or not keys:
            return [False] * len(keys)
        numbers = self._numbers(keys, host_indices)
        try:
            with self.pages.acquire(keys) as hold:
                n = hold.tokens // self.pages.page_tokens
                if n:
                    hold.load_pages(self._layout, [numbers[:n]])
        except Error as error:
            self.pages.failed("load", error)
            return [False] * len(keys)
        return [i < n for i in range(len(keys))]

    def batch_set_v1(
        self, keys: list[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        """Stores pages of the host pool; which of them the daemon has now."""
        if self.pages is None or not keys:
            return [False] * len(keys)
        numbers = self._numbers(keys, host_indices)
        try:
            return good(self.pages.ns.store_pages(self._layout, 0, None, keys_of(keys), numbers))
        except Error as error:
            self.pages.failed("store", error)
            return [False] * len(keys)

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> dict[str, list[bool]]:
        """Of pools other than KV: nothing is cached."""
        return self._refuse_pools(transfers)

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> dict[str, list[bool]]:
        """Of pools other than KV: nothing is stored."""
        return self._refuse_pools(transfers)

    def _refuse_pools(self, transfers: Any) -> dict[str, list[bool]]:
        for name in {str(t.name) for t in transfers} - self._refused_pools:
            logger.error("pool %s: this backend has pages of the KV pool alone: no hits", name)
            self._refused_pools.add(name)
        return {t.name: [False] * len(t.keys or []) for t in transfers}

    def _numbers(self, keys: Sequence[str], host_indices: Any) -> list[int]:
        """Page numbers from indices of tokens, page_size for each key."""
        size = self.mem_pool_host.page_size
        if host_indices.numel() != len(keys) * size:
            raise ValueError(
                f"{host_indices.numel()} indices for {len(keys)} pages of {size} tokens"
            )
        return [i // size for i in host_indices[::size].tolist()]

    # The generic interface copies each page once more; SGLang takes it without interface_v1.

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """A page into a flat tensor; None: it is not cached."""
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys: list[str], target_locations: Any = None, _sizes: Any = None) -> Any:
        """Leading pages, each into a flat tensor; None for the others."""
        pages, got = self.pages, [None] * len(keys)
        if pages is None or not keys:
            return got
        try:
            with pages.acquire(keys) as hold:
                for i in range(hold.tokens // pages.page_tokens):
                    target = memoryview(target_locations[i].view(dtype=_uint8()).numpy())
                    target[:] = hold.block(0, i)
                    got[i] = target_locations[i]
                if not hold.check():
                    return [None] * len(keys)
        except Error as error:
            pages.failed("load", error)
            return [None] * len(keys)
        return got

    def set(
        self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None
    ) -> bool:
        """Stores a page from a flat tensor."""
        return self.batch_set([key], [value])

    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """Stores pages from flat tensors; whether all are there."""
        if self.pages is None or not keys:
            return False
        blocks = [v.contiguous() for v in values]
        try:
            return all(good(self.pages.ns.store(0, None, keys_of(keys), blocks)))
        except Error as error:
            self.pages.failed("store", error)
            return False

    def exists(self, key: str) -> bool:
        """Whether a page is cached."""
        return self.batch_exists([key]) == 1

    def get_stats(self) -> Any:
        """None: the daemon has its own (``kvcachectl stats``)."""
        return None

    def close(self) -> None:
        """Ends the session."""
        if self.pages is not None:
            self.pages.close()
            self.pages = None


def _uint8() -> Any:
    import torch

    return torch.uint8
