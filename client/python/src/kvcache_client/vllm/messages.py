# SPDX-License-Identifier: Apache-2.0
"""What the scheduler tells the workers in a step, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from kvcache_client import Retain

__all__ = ["Load", "Report", "StepOrders", "Store", "StoreOutcome"]


@dataclass
class Load:
    """Blocks to be copied into pages.

    Attributes:
        request: id.
        ticket: 16 bytes, of the scheduler's hold.
        firsts: for each group the number of its first held block.
        pages: for each group the pages of the held blocks: shape [n], one number a block.
        bytes: of one rank.
    """

    request: str
    ticket: bytes
    firsts: list[int]
    pages: list[list[int]]
    bytes: int


@dataclass
class Store:
    """Consecutive blocks of one group, computed when the step ends.

    Attributes:
        job: number of the order, for the answer.
        group: number of the group.
        parent: key before the first block; None at a sequence's begin.
        keys: shape [n * 32] bytes.
        first: number of the first block.
        pages: shape [n].
        decoded: they hold decoded tokens.
        durable: the answer comes when they are on stable storage.
        retain: wishes how long they stay.
        sub_tenant: whose they are, where the session is a gateway's.
    """

    job: int
    group: int
    parent: bytes | None
    keys: bytes
    first: int
    pages: list[int]
    decoded: bool = False
    durable: bool = False
    retain: tuple[Retain, ...] = ()
    sub_tenant: str | None = None


@dataclass
class StepOrders(KVConnectorMetadata):  # type: ignore[misc]
    """All of a step.

    Attributes:
        idle: the step computes nothing.
    """

    idle: bool = False
    loads: list[Load] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)


@dataclass
class StoreOutcome:
    """Of one order, over the ranks that have answered.

    Attributes:
        ranks: that have answered.
        good: leading blocks that every one of them has stored, or found there.
        status: why the first block behind them was not stored.
    """

    ranks: int
    good: int
    status: int

    def join(self, other: StoreOutcome) -> StoreOutcome:
        """Both together: a block is there when all ranks have it."""
        worse = self if self.good <= other.good else other
        return StoreOutcome(self.ranks + other.ranks, worse.good, worse.status)


@dataclass
class Report(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """Outcomes of orders to store."""

    stores: dict[int, StoreOutcome] = field(default_factory=dict)

    def aggregate(self, other: Any) -> Report:
        """Of several ranks."""
        joined = dict(self.stores)
        for job, outcome in other.stores.items():
            joined[job] = joined[job].join(outcome) if job in joined else outcome
        return Report(joined)
