# SPDX-License-Identifier: Apache-2.0
"""The class that vLLM makes: once in the scheduler, once in each worker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvcache_client.vllm.messages import StepOrders
from kvcache_client.vllm.options import Options
from kvcache_client.vllm.plan import Plan
from kvcache_client.vllm.scheduler import SchedulerSide
from kvcache_client.vllm.stats import DaemonStats, PromMetrics
from kvcache_client.vllm.worker import WorkerSide

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm.config import VllmConfig
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

    from kvcache_client.vllm.messages import Report

__all__ = ["KVCacheDaemonConnector"]


class KVCacheDaemonConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """KV cache of an engine in kvcache-daemon; see :mod:`kvcache_client.vllm`."""

    _cache_hit_source = CacheHitSource.HOST

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        options = Options.of(self._kv_transfer_config.kv_connector_extra_config)
        plan = Plan.of(vllm_config, kv_cache_config)
        transfer = self._kv_transfer_config
        name = f"{options.name}-{os.getpid()}"
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(
                plan,
                options,
                name,
                loads=transfer.is_kv_consumer,
                stores=transfer.is_kv_producer,
            )
        else:
            rank = vllm_config.parallel_config.rank
            self._worker = WorkerSide(plan, options, f"{name}-{rank}", rank)

    @property
    def scheduler(self) -> SchedulerSide:
        """The scheduler's side; only there."""
        assert self._scheduler is not None
        return self._scheduler

    @property
    def worker(self) -> WorkerSide:
        """The worker's side; only there."""
        assert self._worker is not None
        return self._worker

    @property
    def requires_kv_delivery(self) -> bool:
        """No: a block that was not stored is a miss later."""
        return False

    # ---- scheduler

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Tokens that the daemon has beyond the local ones; None: ask again."""
        return self.scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        """Pages were allocated for them."""
        self.scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> StepOrders:
        """What the workers do in this step."""
        return self.scheduler.orders(scheduler_output)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        """What they did."""
        self.scheduler.answered(connector_output)

    def request_finished(
        self, request: Request, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """The pages may be freed at once: what is stored of them lies in staging."""
        self.scheduler.finished(request)
        return False, None

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """The same for several groups."""
        self.scheduler.finished(request)
        return False, None

    def has_pending_push_work(self) -> bool:
        """Names wait for stores to end: the engine goes on stepping, a few seconds at most."""
        return self._scheduler is not None and self._scheduler.has_names()

    # ---- worker

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Where the pages are."""
        self.worker.register(kv_caches, self._kv_cache_config.num_blocks)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Loads of this step."""
        orders = self._get_connector_metadata()
        assert isinstance(orders, StepOrders)
        self.worker.load(orders)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: a request is scheduled when all its layers are there."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing: all layers of a block are stored together, when the step ends."""

    def wait_for_save(self) -> None:
        """Stores of this step: copied out when this returns."""
        orders = self._get_connector_metadata()
        assert isinstance(orders, StepOrders)
        self.worker.store(orders)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Loads that have ended."""
        loaded, failed = self.worker.loaded()
        return KVConnectorTransferResults(finished_recving=loaded, failed_recving=failed)

    def build_connector_worker_meta(self) -> Report | None:
        """Stores that have ended."""
        return self.worker.report()

    # ---- both

    def get_kv_connector_stats(self) -> DaemonStats | None:
        """Sums since the last call."""
        return (self._scheduler or self.worker).stats.take()

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> DaemonStats | None:
        """The sums, after their way between processes."""
        return DaemonStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: Any,
    ) -> PromMetrics:
        """Counters of Prometheus."""
        return PromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def take_events(self) -> Iterable[Any]:
        """None: the daemon evicts without telling, so events would promise what is gone.

        ``docs/vllm.md`` says what to do instead.
        """
        return ()

    def shutdown(self) -> None:
        """The engine ends."""
        for side in (self._scheduler, self._worker):
            if side is not None:
                side.close()
        self._scheduler = self._worker = None
