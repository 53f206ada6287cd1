# SPDX-License-Identifier: Apache-2.0
"""vLLM's connector interface against ours: a change there is found here, not in production."""

from __future__ import annotations

import dataclasses
import inspect
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kvcache_client.vllm as package
import pytest
from kvcache_client.vllm.stats import DaemonStats, PromMetrics
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import base, metrics
from vllm.lora.request import LoRARequest
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.kv_cache_utils import _gen_lora_extra_hash_keys
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request

OURS = package.KVCacheDaemonConnector
BASE = base.KVConnectorBase_V1

# Hooks of the base class, as they were when the connector was written: one more means that vLLM
# asks for something that the connector has not thought of.
KNOWN = {
    "bind_connector_metadata",
    "bind_gpu_block_pool",
    "bind_kv_cache_manager",
    "build_connector_meta",
    "build_connector_worker_meta",
    "build_kv_connector_stats",
    "build_prom_metrics",
    "clear_connector_metadata",
    "finish_forward",
    "get_block_ids_with_load_errors",
    "get_external_cache_hit_sources",
    "get_finished",
    "get_finished_count",
    "get_handshake_metadata",
    "get_kv_connector_kv_cache_events",
    "get_kv_connector_stats",
    "get_loaded_kv_cache_group_ids",
    "get_mem_pool_context",
    "get_num_new_matched_tokens",
    "get_required_kvcache_layout",
    "get_transfer_results",
    "handle_preemptions",
    "has_connector_metadata",
    "has_pending_block_frees",
    "has_pending_push_work",
    "on_new_request",
    "register_finished_partial_tail",
    "register_kv_caches",
    "request_finished",
    "requires_kv_delivery",
    "requires_piecewise_for_cudagraph",
    "reset_cache",
    "reset_capture_state",
    "role",
    "save_kv_layer",
    "set_host_xfer_buffer_ops",
    "set_xfer_handshake_metadata",
    "set_xfer_handshake_metadata_pp_aware",
    "shutdown",
    "start_load_kv",
    "supports_divergent_local_hybrid_hits",
    "take_events",
    "update_connector_output",
    "update_state_after_alloc",
    "wait_for_layer_load",
    "wait_for_save",
}


def hooks(of: type) -> dict[str, Any]:
    return {n: m for n, m in inspect.getmembers(of) if not n.startswith("_")}


def test_versions_are_the_pinned_ones() -> None:
    lines = (Path(__file__).parent / "requirements.txt").read_text().splitlines()
    for line in lines:
        if "==" in line and not line.startswith("#"):
            name, wanted = line.split("==")
            assert version(name) == wanted


def test_no_hook_is_new_or_gone() -> None:
    assert set(hooks(BASE)) == KNOWN


def test_nothing_abstract_is_left() -> None:
    assert not OURS.__abstractmethods__
    assert issubclass(OURS, base.SupportsHMA)


def mine() -> list[str]:
    return sorted(n for n in vars(OURS) if n in KNOWN or n == "request_finished_all_groups")


@pytest.mark.parametrize("name", mine())
def test_signature(name: str) -> None:
    """Each hook takes what vLLM's takes, by the same names."""
    theirs = getattr(BASE if hasattr(BASE, name) else base.SupportsHMA, name)
    if isinstance(theirs, property):
        assert isinstance(inspect.getattr_static(OURS, name), property)
        return
    ours = getattr(OURS, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


def test_constructor() -> None:
    assert list(inspect.signature(OURS).parameters) == list(inspect.signature(BASE).parameters)


@pytest.mark.parametrize(
    ("of", "wanted"),
    [
        (SchedulerOutput, "num_scheduled_tokens total_num_scheduled_tokens scheduled_new_reqs "
         "scheduled_cached_reqs kv_connector_block_state"),
        (NewRequestData, "req_id num_computed_tokens"),
        (CachedRequestData, "req_ids num_computed_tokens"),
        (KVConnectorOutput, "finished_recving failed_recving kv_connector_worker_meta"),
        (base.KVConnectorTransferResults, "finished_recving failed_recving"),
        (KVCacheGroupSpec, "layer_names kv_cache_spec enable_kv_transfer host_resident"),
        (KVCacheConfig, "num_blocks kv_cache_groups kv_tp_replicas"),
        (KVCacheBlocks, "blocks"),
        (metrics.KVConnectorStats, "data"),
    ],
)  # fmt: skip
def test_fields(of: type, wanted: str) -> None:
    assert set(wanted.split()) <= {f.name for f in dataclasses.fields(of)}


def test_request() -> None:
    source = inspect.getsource(Request)
    for name in ("block_hashes", "num_prompt_tokens", "kv_transfer_params", "cache_salt",
                 "skip_reading_prefix_cache", "lora_request"):  # fmt: skip
        assert f"self.{name}" in source
    assert isinstance(inspect.getattr_static(Request, "num_tokens"), property)


def test_adapter_is_in_the_hash() -> None:
    """Keys rely on it: an adapter's name and path are in vLLM's hashes."""
    assert {"lora_name", "lora_path", "load_inplace"} <= set(LoRARequest.__struct_fields__)
    lora = LoRARequest("name", 1, "/path")
    assert _gen_lora_extra_hash_keys(SimpleNamespace(lora_request=lora)) == [  # type: ignore[arg-type]
        ("lora", "name", "/path")
    ]


def test_statistics_classes() -> None:
    for ours, theirs in (
        (DaemonStats, metrics.KVConnectorStats),
        (PromMetrics, metrics.KVConnectorPromMetrics),
    ):
        for name, hook in vars(theirs).items():
            if not name.startswith("_") and inspect.isfunction(hook):
                assert list(inspect.signature(getattr(ours, name)).parameters) == list(
                    inspect.signature(hook).parameters
                )


def test_plugin_registers_the_name() -> None:
    package.register()
    package.register()
    assert KVConnectorFactory.get_connector_class_by_name("KVCacheDaemonConnector") is OURS
