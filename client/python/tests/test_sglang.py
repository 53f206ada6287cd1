# SPDX-License-Identifier: Apache-2.0
"""SGLang's classes, from its wheel, with pools of the tests' own. No engine runs.

KVC_SGLANG names a directory with the unpacked wheel of 0.5.23; what its package imports at its top
(kernels, servers) is left out: the packages are made here, the modules are its own.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
import types
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from conftest import Daemon

torch = pytest.importorskip("torch")
WHEEL = os.environ.get("KVC_SGLANG", "")
if not (Path(WHEEL) / "sglang/srt/mem_cache/hicache_storage.py").exists() or not WHEEL:
    pytest.skip("KVC_SGLANG names no unpacked wheel of sglang 0.5.23", allow_module_level=True)
for package in ("sglang", "sglang.srt", "sglang.srt.mem_cache"):
    made = types.ModuleType(package)
    made.__path__ = [str(Path(WHEEL) / package.replace(".", "/"))]
    sys.modules[package] = made

from sglang.srt.mem_cache import hicache_storage as hi  # noqa: E402
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory  # noqa: E402

PAGE, LAYERS, HEADS, SIZE, PAGES = 16, 3, 2, 8, 12


def hashes(n: int, salt: str = "") -> list[str]:
    return [hashlib.sha256(f"{salt}{i}".encode()).hexdigest() for i in range(n)]


class HostPool:
    """As SGLang's pool for multi-head attention: its buffer, its layouts."""

    def __init__(self, layout: str, dtype: Any, seed: int | None) -> None:
        tokens = PAGE * PAGES
        shape = {
            "layer_first": (2, LAYERS, tokens, HEADS, SIZE),
            "page_first": (2, tokens, LAYERS, HEADS, SIZE),
            "page_first_direct": (2, PAGES, LAYERS, PAGE, HEADS, SIZE),
            "page_head": (2, PAGES, HEADS, PAGE, LAYERS, SIZE),
        }[layout]
        self.layout, self.dtype, self.page_size = layout, dtype, PAGE
        self.kv_buffer = torch.zeros(shape, dtype=dtype)
        if seed is not None:
            self.kv_buffer = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(
                dtype
            )

    def page(self, number: int) -> Any:
        if self.layout == "layer_first":
            return self.kv_buffer[:, :, number * PAGE : (number + 1) * PAGE]
        if self.layout == "page_first":
            return self.kv_buffer[:, number * PAGE : (number + 1) * PAGE]
        return self.kv_buffer[:, number : number + 1]


def indices(pages: list[int]) -> Any:
    return torch.cat([torch.arange(p * PAGE, (p + 1) * PAGE) for p in pages])


def backend(daemon: Daemon, model: str, pool: HostPool, **config: Any) -> Any:
    """By SGLang's own dynamic loading."""
    extra = {
        "backend_name": "kvcache-daemon",
        "module_path": "kvcache_client.sglang",
        "class_name": "KVCacheDaemonStorage",
        "interface_v1": 1,
        "socket": daemon.socket,
        "staging_mb": 1,
        **config.pop("extra", {}),
    }
    values = {
        "tp_rank": 0,
        "tp_size": 1,
        "pp_rank": 0,
        "pp_size": 1,
        "attn_cp_rank": 0,
        "attn_cp_size": 1,
        "is_mla_model": False,
        "enable_storage_metrics": False,
        "is_page_first_layout": False,
        "model_name": model,
        "extra_config": extra,
        **config,
    }
    one = StorageBackendFactory.create_backend("dynamic", hi.HiCacheStorageConfig(**values), pool)
    one.register_mem_pool_host(pool)
    return one


LAYOUTS = ["layer_first", "page_first", "page_first_direct", "page_head"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_pages_come_back(daemon: Daemon, layout: str, dtype: Any) -> None:
    keys = hashes(5, layout)
    source, target = HostPool(layout, dtype, 1), HostPool(layout, dtype, None)
    one = backend(daemon, f"{layout} {dtype}", source)
    assert one.batch_exists(keys) == 0
    assert one.batch_set_v1(keys[:4], indices([3, 0, 7, 5])) == [True] * 4
    one.close()
    other = backend(daemon, f"{layout} {dtype}", target)
    assert other.batch_exists(keys) == 4
    assert other.batch_exists(keys[2:]) == 2  # a tail: SGLang has what comes before on the device
    assert other.batch_get_v1(keys, indices([1, 2, 4, 8, 9])) == [True] * 4 + [False]
    for there, here in ((3, 1), (0, 2), (7, 4), (5, 8)):
        assert torch.equal(source.page(there), target.page(here))
    assert not target.page(9).any()
    other.close()


def test_ranks_have_shards(daemon: Daemon) -> None:
    keys = hashes(2, "ranks")
    pools = [HostPool("page_first", torch.float16, seed) for seed in (1, 2)]
    ranks = [backend(daemon, "ranks", p, tp_rank=r, tp_size=2) for r, p in enumerate(pools)]
    assert ranks[0].batch_set_v1(keys, indices([0, 1])) == [True] * 2
    assert ranks[0].batch_exists(keys) == 0  # half a page is no hit
    assert ranks[1].batch_set_v1(keys, indices([0, 1])) == [True] * 2
    for rank, pool in zip(ranks, pools, strict=True):
        assert rank.batch_get_v1(keys, indices([4, 5])) == [True] * 2
        assert torch.equal(pool.page(0), pool.page(4))
        rank.close()


def test_the_generic_interface(daemon: Daemon) -> None:
    pool, keys = HostPool("layer_first", torch.bfloat16, 1), hashes(3, "flat")
    one = backend(daemon, "flat", pool)
    pages = [pool.page(i).flatten() for i in range(2)]
    assert one.batch_set(keys[:2], pages)
    got = one.batch_get(keys, [torch.zeros_like(pages[0]) for _ in keys])
    assert torch.equal(got[0], pages[0])
    assert torch.equal(got[1], pages[1])
    assert got[2] is None
    assert one.exists(keys[1])
    assert not one.exists(keys[2])
    assert one.batch_get_v1(keys[:2], indices([6, 7])) == [True] * 2  # the same bytes
    assert torch.equal(pool.page(6), pool.page(0))
    one.close()


def test_a_daemon_that_goes_costs_hits(own_daemon: Daemon) -> None:
    pool, keys = HostPool("page_first", torch.float16, 1), hashes(2, "gone")
    own_daemon.start()
    one = backend(own_daemon, "gone", pool)
    assert one.batch_set_v1(keys, indices([0, 1])) == [True] * 2
    own_daemon.kill()
    assert one.batch_get_v1(keys, indices([0, 1])) == [False] * 2
    assert one.batch_set_v1(keys, indices([0, 1])) == [False] * 2
    assert one.batch_exists(keys) == 0
    own_daemon.start()
    for _ in range(500):  # the session comes back by itself, at a later call
        if one.batch_set_v1(keys, indices([0, 1])) == [True] * 2:
            break
        time.sleep(0.02)
    assert one.batch_exists(keys) == 2
    one.close()


def test_what_is_not_served_is_named(daemon: Daemon) -> None:
    pool = HostPool("page_first", torch.float16, 1)
    with pytest.raises(ValueError, match="'sokcet'"):
        backend(daemon, "m", pool, extra={"sokcet": "x"})
    for extra, says in (
        ({"staging_mb": -1}, "staging_mb is -1: a whole number from 1 to 1048576"),
        ({"staging_mb": 2**60}, "staging_mb is 1152921504606846976"),
        ({"timeout_ms": 0}, "timeout_ms is 0: .* from 1 to 600000"),
        ({"socket": "x" * 108}, "socket is 'x+...: a text of 1 to 107 bytes"),
        ({"revision": "a\0"}, "revision is 'a.x00'"),
    ):
        with pytest.raises(ValueError, match=says):
            backend(daemon, "m", pool, extra=extra)
    with pytest.raises(ValueError, match="attn_cp_size"):
        backend(daemon, "m", pool, attn_cp_size=2)
    pool.layout = "page_unified"
    with pytest.raises(ValueError, match="page_unified"):
        backend(daemon, "m", pool)
    pool.layout = "page_first"
    one = backend(daemon, "m", pool)
    mamba = hi.PoolTransfer(name=hi.PoolName.MAMBA, keys=hashes(2))
    assert one.batch_exists_v2(hashes(2), [mamba]).kv_hit_pages == 0
    assert one.batch_set_v2([mamba]) == {hi.PoolName.MAMBA: [False] * 2}
    one.close()


# ---- the linker


@pytest.fixture
def linkers(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes linkers by SGLang's factory, over device pools of the tests' own."""
    from sglang.srt.mem_cache.hybrid_cache import linker_pool_assembler as assembler
    from sglang.srt.mem_cache.unified_cache import linker_factory

    from kvcache_client.sglang import linker as ours

    monkeypatch.setattr(ours, "get_model", lambda: types.SimpleNamespace(model_path="linked"))
    monkeypatch.setattr(ours, "get_parallel", lambda: types.SimpleNamespace(tp_size=1))
    made = []

    def make(buffers: Any, replicated: bool = False) -> Any:
        entry = assembler.DevicePoolEntry(
            name=hi.PoolName.KV,
            indices_from_pool=hi.PoolName.KV,
            device_pool=None,
            components=buffers,
            layer_mapping={i: i for i in range(LAYERS)},
            page_size=PAGE,
            rows_are_pages=False,
        )
        group = assembler.DevicePoolGroup([entry], LAYERS, PAGE, rank_replicated=replicated)
        monkeypatch.setattr(ours, "resolve_hybrid_device_pool_group", lambda **_: group)
        allocator = types.SimpleNamespace(get_kvcache=lambda: None)
        params = types.SimpleNamespace(
            page_size=PAGE,
            token_to_kv_pool_allocator=allocator,
            attn_tp_cache_group=None,
            tp_cache_group=None,
            pp_rank=0,
            pp_size=1,
            attn_cp_rank=0,
        )
        config = {
            "linker": "KVCacheDaemonLinker",
            "linker_module_path": "kvcache_client.sglang",
            "linker_extra_config": {"socket": daemon.socket, "staging_mb": 1},
        }
        one = linker_factory.create_unified_cache_linker(
            None, params, backend="dynamic", config=config, components=set()
        )
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def device_buffers(seed: int | None) -> Any:
    """Keys and values of each layer: shape [tokens, heads, head size]."""
    shape = (PAGE * PAGES, HEADS, SIZE)
    if seed is None:
        return [[torch.zeros(shape, dtype=torch.float16) for _ in range(LAYERS)] for _ in "kv"]
    random = torch.Generator().manual_seed(seed)
    return [[torch.randn(shape, generator=random).half() for _ in range(LAYERS)] for _ in "kv"]


def transfer(keys: list[str], pages: list[int] | None = None) -> Any:
    at = None if pages is None else indices(pages)
    return hi.PoolTransfer(name=hi.PoolName.KV, keys=keys, device_indices=at)


def wait_offload(linker: Any) -> bool:
    linker._stores.join()
    assert linker.num_completed_offloads() == 1
    return bool(linker.pop_completed_offload())


def test_offload_then_load_elsewhere(linkers: Any) -> None:
    keys = hashes(4, "linker")
    source, target = device_buffers(1), device_buffers(None)
    first, second = linkers(source), linkers(target)
    assert first.lookup("r", [transfer(keys)]) == []
    assert first.offload([transfer(keys[:3], [5, 2, 9])])
    assert wait_offload(first)
    assert second.lookup("r", [transfer(keys)]) == [1, 2, 3]
    assert second.lookup("tail", [transfer(keys[1:])]) == [1, 2]
    assert second.load("r", [transfer(keys[:3], [0, 1, 2])])
    assert second.load("tail", [transfer(keys[1:2], [7])])
    index = second.start_layer_wise_loading()
    second.layer_done_counter.set_consumer(index)
    second.layer_done_counter.wait_until(LAYERS - 1)
    assert second.finish_layer_wise_loading(index)
    for there, here in ((5, 0), (2, 1), (9, 2), (2, 7)):
        for a, b in zip(chain(*source), chain(*target), strict=True):
            assert torch.equal(
                a[there * PAGE : (there + 1) * PAGE], b[here * PAGE : (here + 1) * PAGE]
            )
    assert second.start_layer_wise_loading() == -1


def test_pages_of_a_request_that_never_loads_are_let_go(
    linkers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvcache_client.sglang import linker as ours

    keys = hashes(1, "expire")
    one = linkers(device_buffers(1))
    assert one.offload([transfer(keys, [0])])
    assert wait_offload(one)
    assert one.lookup("aborted", [transfer(keys)]) == [1]
    monkeypatch.setattr(ours, "_HOLD_SECONDS", -1.0)
    assert one.lookup("next", [transfer(keys)]) == [1]
    assert list(one._held) == ["next"]


def test_a_load_that_fails_is_reported(linkers: Any) -> None:
    keys = hashes(2, "nowhere")
    one = linkers(device_buffers(1))
    assert one.load("r", [transfer(keys, [0, 1])])
    index = one.start_layer_wise_loading()
    assert not one.finish_layer_wise_loading(index)


def test_a_queued_load_is_cancelled(linkers: Any) -> None:
    keys = hashes(1, "cancel")
    one = linkers(device_buffers(1))
    assert one.offload([transfer(keys, [0])])
    assert wait_offload(one)
    assert one.lookup("r", [transfer(keys)]) == [1]
    assert one.load("r", [transfer(keys, [3])])
    assert one.cancel_queued_load("r")
    assert not one.cancel_queued_load("r")
    assert one.start_layer_wise_loading() == -1
    one.reset()
