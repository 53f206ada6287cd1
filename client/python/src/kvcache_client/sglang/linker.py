# SPDX-License-Identifier: Apache-2.0
"""A linker of SGLang's unified cache: device pages to and from the daemon, without a host pool."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from queue import Empty, Queue
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import (
    resolve_hybrid_device_pool_group,
)
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import (
    LayerWiseLoadCounter,
    UnifiedCacheLinker,
)
from sglang.srt.runtime_context import get_model, get_parallel

from kvcache_client import Error
from kvcache_client.sglang.pages import Options, Pages, good, keys_of, logger

__all__ = ["KVCacheDaemonLinker"]

_HOLD_SECONDS = 30.0  # that pages of a lookup are held for its load


class _Rows:
    """A device buffer as pages of bytes.

    Attributes:
        offset, size: where its bytes are in a block.
    """

    def __init__(self, buffer: torch.Tensor, size: int, offset: int) -> None:
        rows = buffer.view(buffer.shape[0], -1)
        if rows.stride(1) != 1 or buffer.stride(0) != rows.shape[1]:
            raise ValueError(f"a buffer of strides {buffer.stride()}: dense rows were expected")
        self.rows = rows.view(torch.uint8)
        self.size, self.offset = size, offset
        self.span = size // self.rows.shape[1]

    def index(self, at: list[int]) -> torch.Tensor:
        """Rows of the pages that begin at rows ``at``: shape [pages * span]."""
        first = torch.tensor(at, dtype=torch.int64, device=self.rows.device)
        return (first[:, None] + torch.arange(self.span, device=first.device)).flatten()

    def gather(self, at: list[int], to: torch.Tensor) -> None:
        """Pages into blocks ``to``, shape [pages, block bytes], uint8."""
        got = self.rows[self.index(at)].view(len(at), self.size)
        to[:, self.offset : self.offset + self.size].copy_(got)

    def scatter(self, at: list[int], blocks: torch.Tensor) -> None:
        """Blocks into pages."""
        part = blocks[:, self.offset : self.offset + self.size].to(self.rows.device)
        self.rows[self.index(at)] = part.reshape(-1, self.rows.shape[1])


class KVCacheDaemonLinker(UnifiedCacheLinker):  # type: ignore[misc]
    """``--unified-cache-external-linker-backend dynamic``: see ``docs/sglang.md``.

    Loads and stores go through a host buffer, on a thread each. A load that the daemon cannot
    serve fails before the forward pass's output is used; SGLang then aborts its requests, so what
    :meth:`lookup` promised is held until it is loaded.
    """

    def __init__(
        self,
        server_args: Any,
        params: Any,
        *,
        components: Any,
        extra_config: Mapping[str, Any] | None = None,
        forward_stream: Any = None,
    ) -> None:
        self.forward_stream = forward_stream
        self.group = resolve_hybrid_device_pool_group(
            kvcache=params.token_to_kv_pool_allocator.get_kvcache(),
            page_size=params.page_size,
            params=params,
            components=components,
        )
        self.pools = self.group.entry_map
        others = sorted(str(name) for name in self.pools if name != PoolName.KV)
        if others:
            raise ValueError(f"pools {', '.join(others)}: this linker has pages of KV alone")
        self.entry = self.pools[PoolName.KV]
        self._layers = self._rows_of(self.entry)
        size = sum(r.size for rows in self._layers.values() for r in rows)
        rank, ranks = self._ranks(params)
        self.owner = not self.group.rank_replicated or rank == 0
        self.pages = Pages(
            Options.of(extra_config),
            model=get_model().model_path,
            page_tokens=params.page_size,
            page_bytes=size,
            shape=(0, 1) if self.group.rank_replicated else (rank, ranks),
            layout="sglang device pages: layer, buffer",
            dtype=str(self.entry.kv_buffer[0].dtype).removeprefix("torch."),
            stage=f"pp={params.pp_rank}/{params.pp_size} cp={params.attn_cp_rank}",
        )
        self.layer_done_counter = LayerWiseLoadCounter(self.group.num_layers)
        self._held: dict[str, tuple[float, Any]] = {}
        self._queued: dict[str, list[Any]] = {}
        self._results: Queue[bool] = Queue()
        self._loads: Queue[Any] = Queue()
        self._stores: Queue[Any] = Queue()
        self._threads = [
            threading.Thread(target=self._serve, args=(queue, work), daemon=True)
            for queue, work in ((self._loads, self._load), (self._stores, self._store))
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _ranks(params: Any) -> tuple[int, int]:
        group = params.attn_tp_cache_group or params.tp_cache_group
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(group=group), torch.distributed.get_world_size(
                group=group
            )
        return 0, get_parallel().tp_size

    @staticmethod
    def _rows_of(entry: Any) -> dict[int, list[_Rows]]:
        """The buffers of each layer, in the order in which a block has their bytes."""
        layers: dict[int, list[_Rows]] = {}
        offset = 0
        for layer in sorted(entry.layer_mapping):
            mapped = entry.layer_mapping[layer]
            for number in [mapped] if isinstance(mapped, int) else mapped:
                for buffers, meta in zip(entry.components, entry.buffer_meta, strict=True):
                    size = meta[number][2]
                    layers.setdefault(layer, []).append(_Rows(buffers[number], size, offset))
                    offset += size
        return layers

    # ---- what SGLang's scheduler calls

    def lookup(self, rid: str, transfers: list[Any]) -> list[int]:
        """Lengths in pages that can be loaded; they are held until the request is loaded."""
        kv = self.group.resolve_transfers(transfers)
        if not kv or not kv[0].keys:
            return []
        self._release(rid)
        self._expire()
        try:
            hold = self.pages.acquire(kv[0].keys)
        except Error as error:
            self.pages.failed("lookup", error)
            return []
        self.pages.watch()
        if not hold:
            return []
        self._held[rid] = time.monotonic(), hold
        return list(range(1, hold.tokens // self.pages.page_tokens + 1))

    def load(self, rid: str, transfers: list[Any]) -> bool:
        """Queues a load of what :meth:`lookup` found."""
        kv = self.group.resolve_transfers(transfers, allow_partial=True, allow_missing_kv=True)
        if not kv:
            return False
        if rid in self._queued:
            raise RuntimeError(f"a load for {rid} is queued already")
        self._queued[rid] = kv
        return True

    def cancel_queued_load(self, rid: str) -> bool:
        """Drops a load that has not begun."""
        self._release(rid)
        return self._queued.pop(rid, None) is not None

    def start_layer_wise_loading(self) -> int:
        """Begins the queued loads; -1: there are none."""
        if not self._queued:
            return -1
        queued, self._queued = self._queued, {}
        index: int = self.layer_done_counter.update_producer()
        work = [(self._held.pop(rid, (0.0, None))[1], kv[0]) for rid, kv in queued.items()]
        self._loads.put((index, work))
        return index

    def finish_layer_wise_loading(self, counter_index: int) -> bool:
        """Whether all layers came."""
        return bool(self.layer_done_counter.finish(counter_index))

    def offload(self, transfers: list[Any], session_id: str | None = None) -> bool:
        """Queues a store."""
        kv = self.group.resolve_transfers(transfers, allow_partial=True)
        if not kv:
            return False
        if not self.owner:
            self._results.put(True)
            return True
        on_device = self.entry.kv_buffer[0].device.type != "cpu"
        self._stores.put((kv[0], self.record_offload_ready() if on_device else []))
        return True

    def num_completed_offloads(self) -> int:
        """Stores whose result was not taken yet."""
        return self._results.qsize()

    def pop_completed_offload(self) -> bool:
        """The oldest result."""
        return self._results.get_nowait()

    def reset(self) -> None:
        """Ends what is under way; the daemon keeps what it has."""
        self._queued.clear()
        for rid in list(self._held):
            self._release(rid)
        self._loads.join()
        self._stores.join()
        while True:
            try:
                self._results.get_nowait()
            except Empty:
                break
        self.layer_done_counter.reset()

    def close(self) -> None:
        """Ends threads and session."""
        self.reset()
        for queue in (self._loads, self._stores):
            queue.put(None)
        for thread in self._threads:
            thread.join()
        self.pages.close()

    # ---- threads

    def _release(self, rid: str) -> None:
        _, hold = self._held.pop(rid, (0.0, None))
        if hold is not None:
            hold.release()

    def _expire(self) -> None:
        """SGLang does not say when a request that was looked up is aborted before its load."""
        oldest = time.monotonic() - _HOLD_SECONDS
        for rid in [r for r, (since, _) in self._held.items() if since < oldest]:
            if rid not in self._queued:
                self._release(rid)

    def _serve(self, queue: Queue[Any], work: Any) -> None:
        while True:
            task = queue.get()
            try:
                if task is None:
                    return
                work(*task)
            finally:
                queue.task_done()

    def _load(self, index: int, work: list[tuple[Any, Any]]) -> None:
        """One batch: whole blocks to the host, then layer by layer to their pages."""
        try:
            ready = [self._fetch(hold, kv) for hold, kv in work]
            for layer in range(self.group.num_layers):
                for at, blocks in ready:
                    for rows in self._layers.get(layer, ()):
                        rows.scatter(at, blocks)
                if self.entry.kv_buffer[0].is_cuda:
                    torch.cuda.current_stream().synchronize()
                self.layer_done_counter.complete(index, layer)
        except Exception as error:  # the requests of this batch fail, and nothing else
            logger.error("a load failed: %s", error)
            self.layer_done_counter.fail(index, error)

    def _fetch(self, hold: Any, kv: Any) -> tuple[list[int], torch.Tensor]:
        """Rows of the pages, and their blocks in host memory: shape [pages, block bytes]."""
        at = self.entry.prepare_locations(kv.host_indices)
        if hold is None:
            hold = self.pages.acquire(kv.keys)
        with hold:
            held = hold.groups[0][1] if hold else 0
            if held < len(at):
                raise RuntimeError(f"{held} pages of {len(at)} are there")
            blocks = torch.empty((held, self.pages.page_bytes), dtype=torch.uint8)
            hold.read_into(0, blocks)
        return at, blocks[: len(at)]

    def _store(self, kv: Any, events: list[Any]) -> None:
        done = False
        try:
            for event in events:
                event.synchronize()
            at = self.entry.prepare_locations(kv.host_indices)
            blocks = torch.empty((len(at), self.pages.page_bytes), dtype=torch.uint8)
            for rows in (r for layer in self._layers.values() for r in layer):
                rows.gather(at, blocks)
            done = all(good(self.pages.ns.store(0, None, keys_of(kv.keys), list(blocks))))
        except Error as error:
            self.pages.failed("store", error)
        except Exception as error:  # a store that fails costs a later hit, and nothing else
            logger.error("a store failed: %s", error)
        finally:
            self._results.put(done)
