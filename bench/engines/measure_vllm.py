# SPDX-License-Identifier: Apache-2.0
"""vLLM with the connector against vLLM alone: time to the first token, and throughput.

usage: vllm.sh ttft|loads|throughput [--tokens N] [--rounds N] [--kind bench]

ttft: a shared prefix of N tokens and 37 own ones; the engine with the connector has never computed
the prefix. Beside it what an engine takes that has the prefix in its own cache, and how fast the
connector's loads are. loads: how fast they are beside the C client's (c_loads.c), which loads the
same blocks into pages of the same sizes and numbers, in turns. throughput: prompts that share
nothing, in turns. The result is one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from model import make
from rig import BIN, Daemon, Engine, preload, tokens


def _watch(_worker: Any) -> None:
    """In the engine's process: keeps (bytes, seconds, pages) of each load, and keys of stores."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    side = get_kv_transfer_group().worker
    side.seen, side.keys = [], {}
    count, load, store = side.stats.load, side._load_one, side._store_one

    def load_one(*given: Any) -> bool:
        side.pages_now = given[-1].pages[0]
        return bool(load(*given))

    def counted(size: int, seconds: float) -> None:
        side.seen.append((size, seconds, side.pages_now))
        count(size, seconds)

    def store_one(order: Any, end: float) -> int:
        side.keys[order.first] = order.keys
        return int(store(order, end))

    side.stats.load, side._load_one, side._store_one = counted, load_one, store_one


def _seen(_worker: Any) -> list[tuple[int, float, list[int]]]:
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return list(get_kv_transfer_group().worker.seen)


def _stored(_worker: Any) -> bytes:
    """Keys of the blocks that were stored of one sequence."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    keys = get_kv_transfer_group().worker.keys
    return b"".join(keys[first] for first in sorted(keys))


def _where(_worker: Any) -> dict[str, Any]:
    """Namespace and pages, as c_loads.c wants them."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    from kvcache_client._session import spec_of

    side = get_kv_transfer_group().worker
    (group,) = side.plan.groups
    texts = spec_of(groups=[group.group], **side.plan.spec)
    layout = side.pages.layout
    return {
        "ns": [*texts[:10], *texts[11], group.block_tokens, group.block_bytes],
        "pages": layout.pages_max,
        "regions": [[r.stride, r.bytes] for r in layout.groups[0]],
    }


class CClient:
    """bench/engines/c_loads.c: the same loads without Python and engine."""

    def __init__(self, socket: str, where: dict[str, Any], keys: bytes) -> None:
        self._process = subprocess.Popen(
            [BIN / "kvcache-c-loads"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._say({"socket": socket, "keys": keys.hex()} | where)

    def _say(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def load(self, pages: list[int]) -> float:
        """Seconds of one load into these pages."""
        self._say(pages)
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"c_loads ended with {self._process.wait()}")
        return int(answer) / 1e9

    def close(self) -> None:
        """Ends it."""
        self._process.communicate()


def _engine(shared: int) -> dict[str, int]:
    """Settings. Few pages: they are soon in use, and a server of some age has no page faults."""
    size = shared + 512
    return {
        "max_model_len": size,
        "max_num_batched_tokens": size,
        "block_size": 128,
        "num_gpu_blocks_override": 2 * (size // 128) + 8,
    }


def ttft(model: str, shared: int, rounds: int) -> dict[str, float]:
    """Milliseconds to the first token: medians; the first prompt of each process is left out."""
    daemon = Daemon(memory="1GiB")
    prefix = tokens(shared, "shared")
    prompts = [prefix + tokens(37, "own", i) for i in range(rounds + 1)]
    warm = [tokens(shared + 37, "warm", i) for i in range(3)]
    found: dict[str, list[float]] = {}
    answers = {}
    more = _engine(shared)
    for who in ("first", "plain", "own cache", "connector"):
        connector = {"socket": daemon.socket} if who in ("first", "connector") else None
        with Engine(model, connector=connector, **more) as engine:
            for prompt in warm:
                engine.generate([prompt], [{"no_store": True}], max_tokens=1)
            if who == "connector":
                engine.call("collective_rpc", _watch)
            for prompt in prompts[: 1 if who == "first" else None]:
                (answer,) = engine.generate([prompt])
                found.setdefault(who, []).append(answer.ttft * 1e3)
                answers.setdefault(who, []).append(answer.tokens)
                if who != "own cache":
                    engine.call("reset_prefix_cache")
            if who == "connector":
                (loads,) = engine.call("collective_rpc", _seen)
    assert answers["plain"] == answers["own cache"] == answers["connector"], "the answers differ"
    daemon.close()
    plain, own, ours = (
        statistics.median(found[w][1:]) for w in ("plain", "own cache", "connector")
    )
    rate = statistics.median(size / seconds for size, seconds, _ in loads[1:])
    return {
        "tokens": shared,
        "plain_ms": round(plain, 1),
        "own_cache_ms": round(own, 1),
        "connector_ms": round(ours, 1),
        "times": round(plain / ours, 1),
        "load_bytes": loads[0][0],
        "load_GBps": round(rate / 1e9, 2),
    }


def loads(model: str, shared: int, rounds: int) -> dict[str, float]:
    """Rates of the connector and of the C client: same daemon, blocks, page sizes and numbers."""
    daemon = Daemon(memory="1GiB")
    prefix = tokens(shared, "shared")
    prompts = [prefix + tokens(37, "own", i) for i in range(rounds + 2)]
    connector = {"socket": daemon.socket}
    with Engine(model, connector=connector, **_engine(shared)) as engine:
        engine.call("collective_rpc", _watch)
        engine.generate([prompts[0]])
        (keys,) = engine.call("collective_rpc", _stored)
    ours, theirs = [], []
    with Engine(model, connector=connector, **_engine(shared)) as engine:
        for i in range(3):
            engine.generate([tokens(shared + 37, "warm", i)], [{"no_store": True}], max_tokens=1)
        engine.call("collective_rpc", _watch)
        (where,) = engine.call("collective_rpc", _where)
        client = CClient(daemon.socket, where, keys)
        for prompt in prompts[1:]:
            engine.generate([prompt], [{"no_store": True}], max_tokens=1)
            engine.call("reset_prefix_cache")
            (seen,) = engine.call("collective_rpc", _seen)
            size, seconds, pages = seen[-1]
            ours.append(size / seconds)
            theirs.append(size / client.load(pages))
    client.close()
    daemon.close()
    assert len(seen) == len(ours) == rounds + 1, "each prompt is one load"
    pairs = [a / b for a, b in zip(ours[1:], theirs[1:], strict=True)]
    return {
        "tokens": shared,
        "load_bytes": size,
        "blocks": len(pages),
        "fragment_bytes": where["regions"][0][1],
        "connector_GBps": round(statistics.median(ours[1:]) / 1e9, 2),
        "c_GBps": round(statistics.median(theirs[1:]) / 1e9, 2),
        "share": round(statistics.median(pairs), 2),
        "least": round(min(pairs), 2),
        "most": round(max(pairs), 2),
    }


def throughput(model: str, rounds: int, requests: int) -> dict[str, float]:
    """Tokens a second of prompts that share nothing, in interleaved runs of both engines."""
    daemon = Daemon(memory="1GiB")
    more = {"max_num_batched_tokens": 2048, "enable_prefix_caching": True}
    shares, rates = [], {"plain": [], "connector": []}
    with (
        Engine(model, **more) as plain,
        Engine(model, connector={"socket": daemon.socket}, **more) as ours,
    ):
        engines = {"plain": plain, "connector": ours}
        for n in range(rounds + 1):
            prompts = [tokens(512, "nothing shared", n, i) for i in range(requests)]
            order = list(engines) if n % 2 else list(engines)[::-1]
            seconds = {}
            for who in order:
                began = time.perf_counter()
                engines[who].generate(prompts, max_tokens=16)
                seconds[who] = time.perf_counter() - began
            if n > 0:  # the first is for warming up
                for who, s in seconds.items():
                    rates[who].append(requests * 528 / s)
                shares.append(seconds["plain"] / seconds["connector"])
    daemon.close()
    return {
        "rounds": rounds,
        "plain_tokens_per_s": round(statistics.median(rates["plain"])),
        "connector_tokens_per_s": round(statistics.median(rates["connector"])),
        "share": round(statistics.median(shares), 3),
        "least": round(min(shares), 3),
        "most": round(max(shares), 3),
        "share_of_best": round(max(rates["connector"]) / max(rates["plain"]), 3),
    }


def main() -> None:
    """Prints one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["ttft", "loads", "throughput"])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--kind", default="bench")
    a = parser.parse_args()
    model = str(make(a.kind, Path(os.environ["KVC_MODELS"]) / a.kind))
    if a.what == "ttft":
        result = ttft(model, a.tokens, a.rounds)
    elif a.what == "loads":
        result = loads(model, a.tokens, a.rounds)
    else:
        result = throughput(model, a.rounds, a.requests)
    print(json.dumps({"what": a.what, "model": a.kind} | result))


if __name__ == "__main__":
    preload()
    main()
