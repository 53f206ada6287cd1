# SPDX-License-Identifier: Apache-2.0
"""vLLM with the connector against vLLM alone: time to the first token, and throughput.

usage: vllm.sh ttft|throughput [--tokens N] [--rounds N] [--kind bench]

ttft: a shared prefix of N tokens and 37 own ones; the engine with the connector has never computed
the prefix. Beside it what an engine takes that has the prefix in its own cache, how fast the
connector's loads are, and the C client with blocks of the same size and number: read in place
(kvcachebench load), and copied into pages (kvcachebench pages). throughput: prompts that share
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


def _watch_loads(_worker: Any) -> None:
    """In the engine's process: the connector keeps (bytes, seconds) of each load."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    side = get_kv_transfer_group().worker
    side.seen, count = [], side.stats.load

    def load(size: int, seconds: float) -> None:
        side.seen.append((size, seconds))
        count(size, seconds)

    side.stats.load = load


def _loads(_worker: Any) -> tuple[int, int, list[tuple[int, float]]]:
    """Bytes of a block, of its part that lies in one place, and what was seen."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    side = get_kv_transfer_group().worker
    return side.plan.groups[0].block_bytes, side.pages.layout.groups[0][0].bytes, side.seen


def _c_client(block: int, blocks: int, fragment: int) -> dict[str, float]:
    """GB/s of the C client, one request at a time."""
    rates = {}
    for what, more in (("load", []), ("pages", [f"--fragments={fragment}", "--device=host"])):
        sizes = [f"--block-bytes={block}", f"--batch={blocks}", "--depth=1", "--json"]
        command = [str(BIN / "kvcachebench"), what, *sizes, *more]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        lines = [json.loads(line) for line in out.splitlines()]
        (first, *_) = [x["value"] for x in lines if x["unit"] == "B/s"]
        rates[f"c_{what}_GBps"] = round(first / 1e9, 2)
    return rates


def ttft(model: str, shared: int, rounds: int) -> dict[str, float]:
    """Milliseconds to the first token: medians; the first prompt of each process is left out."""
    daemon = Daemon(memory="1GiB")
    prefix = tokens(shared, "shared")
    prompts = [prefix + tokens(37, "own", i) for i in range(rounds + 1)]
    warm = [tokens(shared + 37, "warm", i) for i in range(3)]
    found: dict[str, list[float]] = {}
    answers = {}
    size = shared + 512
    more = {"max_model_len": size, "max_num_batched_tokens": size, "block_size": 128}
    # Few pages, which the warm-up touches: a server that has run for a while has no page faults.
    more["num_gpu_blocks_override"] = 2 * (size // 128) + 8
    for who in ("first", "plain", "own cache", "connector"):
        connector = {"socket": daemon.socket} if who in ("first", "connector") else None
        with Engine(model, connector=connector, **more) as engine:
            for prompt in warm:
                engine.generate([prompt], [{"no_store": True}], max_tokens=1)
            if who == "connector":
                engine.call("collective_rpc", _watch_loads)
            for prompt in prompts[: 1 if who == "first" else None]:
                (answer,) = engine.generate([prompt])
                found.setdefault(who, []).append(answer.ttft * 1e3)
                answers.setdefault(who, []).append(answer.tokens)
                if who != "own cache":
                    engine.call("reset_prefix_cache")
            if who == "connector":
                ((block, fragment, loads),) = engine.call("collective_rpc", _loads)
    assert answers["plain"] == answers["own cache"] == answers["connector"], "the answers differ"
    daemon.close()
    plain, own, ours = (
        statistics.median(found[w][1:]) for w in ("plain", "own cache", "connector")
    )
    rate = statistics.median(size / seconds for size, seconds in loads[1:]) / 1e9
    theirs = _c_client(block, loads[0][0] // block, fragment)
    return {
        "tokens": shared,
        "plain_ms": round(plain, 1),
        "own_cache_ms": round(own, 1),
        "connector_ms": round(ours, 1),
        "times": round(plain / ours, 1),
        "load_bytes": loads[0][0],
        "load_GBps": round(rate, 2),
        **theirs,
        "share_of_c_load": round(rate / theirs["c_load_GBps"], 2),
        "share_of_c_pages": round(rate / theirs["c_pages_GBps"], 2),
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
    parser.add_argument("what", choices=["ttft", "throughput"])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--kind", default="bench")
    a = parser.parse_args()
    model = str(make(a.kind, Path(os.environ["KVC_MODELS"]) / a.kind))
    if a.what == "ttft":
        result = ttft(model, a.tokens, a.rounds)
    else:
        result = throughput(model, a.rounds, a.requests)
    print(json.dumps({"what": a.what, "model": a.kind} | result))


if __name__ == "__main__":
    preload()
    main()
