# SPDX-License-Identifier: Apache-2.0
"""Statistics through vLLM's hooks: sums of an interval, in its log line and in Prometheus."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

__all__ = ["COUNTERS", "DaemonStats", "PromMetrics", "Stats"]

# name -> what it counts; in Prometheus vllm:kvcache_daemon_NAME.
COUNTERS: dict[str, str] = {
    "lookups": "Prefixes that were asked for.",
    "lookup_seconds": "Time that the scheduler waited for answers.",
    "hit_tokens": "Tokens whose KV was promised to requests.",
    "load_bytes": "Bytes that were loaded, over all ranks.",
    "load_seconds": "Time that loads took, over all ranks.",
    "loads_failed": "Requests that were computed because their load failed.",
    "store_bytes": "Bytes that were handed to the daemon, over all ranks.",
    "store_seconds": "Time that steps spent with stores, over all ranks.",
    "blocks_not_stored": "Blocks that the daemon did not take, for whatever reason.",
}


class DaemonStats(KVConnectorStats):  # type: ignore[misc]
    """Sums by name (:data:`COUNTERS`)."""

    def reset(self) -> None:
        """All zero."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> DaemonStats:
        """Adds those of another rank or interval."""
        for name, value in other.data.items():
            self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        """For the log line: sums, and rates in GB/s."""
        line: dict[str, int | float] = {
            k: round(v, 3) if isinstance(v, float) else v for k, v in self.data.items()
        }
        for what in ("load", "store"):
            seconds = self.data.get(f"{what}_seconds", 0)
            if seconds:
                line[f"{what}_GBps"] = round(self.data.get(f"{what}_bytes", 0) / seconds / 1e9, 2)
        return line

    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not self.data


class Stats:
    """Counts until they are taken."""

    def __init__(self) -> None:
        self._now: dict[str, float] = {}

    def add(self, name: str, value: float) -> None:
        """Adds to a sum of :data:`COUNTERS`."""
        self._now[name] = self._now.get(name, 0) + value

    def lookup(self, seconds: float) -> None:
        """A prefix was asked for."""
        self.add("lookups", 1)
        self.add("lookup_seconds", seconds)

    def hit(self, tokens: int) -> None:
        """A hit was promised."""
        self.add("hit_tokens", tokens)

    def load(self, size: int, seconds: float) -> None:
        """A rank copied blocks into pages."""
        self.add("load_bytes", size)
        self.add("load_seconds", seconds)

    def load_failed(self) -> None:
        """A request is computed instead."""
        self.add("loads_failed", 1)

    def store(self, size: int, seconds: float) -> None:
        """A step's stores."""
        self.add("store_bytes", size)
        self.add("store_seconds", seconds)

    def not_stored(self, blocks: int) -> None:
        """The daemon did not take them."""
        self.add("blocks_not_stored", blocks)

    def take(self) -> DaemonStats | None:
        """The sums since the last time; None: nothing happened."""
        if not self._now:
            return None
        taken, self._now = self._now, {}
        return DaemonStats(data=taken)


class PromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """Counters of Prometheus, one for each of :data:`COUNTERS`."""

    def __init__(self, config: Any, types: Any, labels: list[str], values: dict[int, Any]) -> None:
        super().__init__(config, types, labels, values)
        self._counters: dict[str, dict[int, Any]] = {}
        for name, text in COUNTERS.items():
            counter = self._counter_cls(
                name=f"vllm:kvcache_daemon_{name}", documentation=text, labelnames=labels
            )
            self._counters[name] = {i: counter.labels(*v) for i, v in values.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Adds an interval."""
        for name, value in transfer_stats_data.items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(value)
