# SPDX-License-Identifier: Apache-2.0
"""The connector beside LMCache's MP server: the same engine, prompts and memory.

usage: lmcache.sh load [--tokens 1024,2048,4096,8192] [--rounds N] [--way shm|socket] [--json]
       lmcache.sh restart|killed|others [--way shm|socket] [--json]
       lmcache.sh disk [--rounds N] [--disk-gib 2] [--way shm|socket] [--json]

load: all engines live side by side and take turns; with a connector an engine's own cache is off.
restart: the daemon or server is ended and started again under a living engine. It stores one prompt
twice over; another one is stored before that alone, and a new engine asks for it afterwards.
killed: an engine is killed in the middle of a store, and of a load; another one goes on.
disk: 3 GiB of blocks, 1 GiB of memory, and a disk with a limit of --disk-gib.
others: what vLLM and LMCache have and a CPU engine does not run, with what it says.
The result is tables, or with --json one line of JSON a case. When something ends a run, the tables
of what was measured before are printed all the same.
What a side cannot do is in the result with what it said.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import peer
from model import make
from rig import Daemon, Engine, EngineError, tokens

OWN = 8  # tokens behind the prefix, of one prompt alone: few, so that the step is short
OURS, THEIRS, LOCAL = "kvcache-daemon", "LMCache", "own cache"
_gib = 1 << 30


class Results:
    """What was found: JSON lines at once, or tables, a column a side, when all is there."""

    def __init__(self) -> None:
        self.json = False
        self.found: list[dict[str, Any]] = []

    def add(self, values: dict[str, Any]) -> None:
        """One case of one side."""
        if self.json:
            print(json.dumps(values), flush=True)
        else:
            self.found.append(values)

    def tables(self) -> None:
        """Cases of the same name and settings stand beside each other."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for values in self.found:
            name = ", ".join(str(values[k]) for k in ("what", "when", "by", "way") if k in values)
            groups.setdefault(name, []).append(values)
        for name, cases in groups.items():
            names = dict.fromkeys(k for c in cases for k in c)
            rows = [k for k in names if k not in ("what", "when", "by", "way", "who")]
            print(f"\n| {name} | " + " | ".join(str(c.get("who", "")) for c in cases) + " |")
            print("|---" * (len(cases) + 1) + "|")
            for row in rows:
                cells = (_cell(c.get(row, "")) for c in cases)
                print(f"| {row.replace('_', ' ')} | " + " | ".join(cells) + " |")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        if "cached" in value:
            return f"{value['ttft_ms']} ms, {value['cached']} cached"
        return ", ".join(f"{k} {v}" for k, v in value.items())
    if isinstance(value, list):
        return "; ".join(_cell(v) for v in value)
    return " ".join(str(value).replace("|", "/").split())


results = Results()


def say(**values: Any) -> None:
    """One case."""
    results.add(values)


@contextmanager
def tried(who: str, server: Any, **case: Any) -> Iterator[None]:
    """A side that fails is a case, named as if it had not; the other one is measured as well."""
    try:
        yield
    except (EngineError, RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        last = [line for line in server.log().splitlines() if "ERROR" in line][-1:]
        say(who=who, **case, failed=" ".join([str(error)[-400:], *last]))


def prompt(prefix: list[int], *seed: object) -> list[int]:
    """A prefix and own tokens."""
    return prefix + tokens(OWN, "own", *seed)


def engine(model: str, who: str, server: Any, *, space: int = 2, **more: Any) -> Engine:
    """An engine with a connector, or with none: who is "plain". space: its own KV memory, GiB.

    With a connector its own prefix cache is off, so that every prefix is loaded.
    """
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(space)
    options = {"max_model_len": 8704, "max_num_batched_tokens": 2048, "block_size": 128} | more
    options["enable_prefix_caching"] = who == "plain"
    if who == OURS:
        return Engine(model, connector={"socket": server.socket}, **options)
    if who == THEIRS:
        return Engine(model, connector=server.config, transfer=peer.CONNECTOR, **options)
    return Engine(model, **options)


class Ours(Daemon):
    """The daemon."""

    def log(self) -> str:
        """What it has said."""
        return (self.dir / "log").read_text(errors="replace")

    def memory(self) -> dict[str, int]:
        """MiB: its own, and shared memory with the blocks."""
        return peer.memory(self.pid)


class Ask:
    """One prompt: milliseconds to the first token, of the load alone, and tokens from the cache."""

    def __init__(self, engine: Engine, prompt: list[int]) -> None:
        (answer,) = engine.generate([prompt], max_tokens=2)
        loads = engine.call("take_loads")
        self.ttft = answer.ttft * 1e3
        self.load = sum(loads) * 1e3
        self.cached = answer.cached
        self.tokens = answer.tokens

    def figures(self) -> dict[str, Any]:
        """For a line of JSON."""
        return {
            "ttft_ms": round(self.ttft, 1),
            "load_ms": round(self.load, 1),
            "cached": self.cached,
        }


def servers(stack: ExitStack, memory: float, way: str, **more: Any) -> dict[str, Any]:
    """Both, with the same memory in GiB; more: disk in GiB, and settings of the daemon."""
    disk = more.pop("disk", 0)
    settings = {"nvme.limit": f"{int(disk * 1024)}MiB"} if disk else {}
    # A block is 16 MiB and a header: a chunk of 32 MiB, the default here, has room for one.
    settings |= {"memory.budget": "12GiB", "host.chunk": "256MiB"} | more
    host = f"{int(memory * 1024)}MiB"
    ours = Ours(memory=host, storage=bool(disk), more=settings)
    stack.callback(ours.close)
    theirs = peer.Server(memory_gb=memory, way=way, disk=disk)
    stack.callback(theirs.close)
    return {OURS: ours, THEIRS: theirs}


# ---- load


def load(model: str, sizes: list[int], rounds: int, way: str) -> None:
    """Medians over rounds; what comes first in each process is left out."""
    prefixes = {n: tokens(n, "prefix", n) for n in sizes}
    kv = sum(sizes) * 128 * 1024 / _gib
    found: dict[tuple[int, str], list[Ask]] = {}
    with ExitStack() as stack:
        made = servers(stack, memory=max(1.0, round(kv * 1.6, 1)), way=way)
        engines = {w: stack.enter_context(engine(model, w, s)) for w, s in made.items()}
        engines["plain"] = stack.enter_context(engine(model, "plain", None, space=3))
        for w, e in engines.items():
            for i in range(3):
                Ask(e, prompt(tokens(512, "warm", i), i))
            if w != "plain":
                for n, prefix in prefixes.items():
                    Ask(e, prompt(prefix, "first", n))
        truth = {n: Ask(engines["plain"], prompt(p, 0)) for n, p in prefixes.items()}
        for r in range(-2, rounds):
            for n, prefix in prefixes.items():
                order = [OURS, THEIRS] if r % 2 else [THEIRS, OURS]
                asked = {w: Ask(engines[w], prompt(prefix, r)) for w in order}
                asked[LOCAL] = Ask(engines["plain"], prompt(prefix, r))
                if len({a.tokens for a in asked.values()}) != 1:
                    raise SystemExit(
                        f"other answers: { ({w: a.tokens for w, a in asked.items()}) }"
                    )
                if results.json:
                    each = {w: a.figures() for w, a in asked.items()}
                    say(what="round", n=r, tokens=n, **each)
                if r >= 0:
                    for who, a in asked.items():
                        found.setdefault((n, who), []).append(a)
        used = {w: s.memory() for w, s in made.items()}
    _report(sizes, truth, found, used, way)


def _report(
    sizes: list[int],
    truth: dict[int, Ask],
    found: dict[tuple[int, str], list[Ask]],
    used: dict[str, dict[str, int]],
    way: str,
) -> None:
    table = sys.stderr if results.json else sys.stdout
    table.write(
        "| tokens | plain ms | own cache ms | kvcache-daemon ms | LMCache ms | load ms | "
        "LMCache's | times faster |\n|---|---|---|---|---|---|---|---|\n"
    )
    for n in sizes:
        line: dict[str, Any] = {"what": "load", "tokens": n, "way": way}
        line["plain"] = {"ttft_ms": round(truth[n].ttft, 1)}
        for who in (OURS, THEIRS, LOCAL):
            asks = found[n, who]
            line[who] = {
                "ttft_ms": round(statistics.median(a.ttft for a in asks), 1),
                "load_ms": round(statistics.median(a.load for a in asks), 1),
                "least_load_ms": round(min(a.load for a in asks), 1),
                "hit_ratio": round(statistics.mean(a.cached / n for a in asks), 4),
                "rounds": len(asks),
            }
        ours, theirs = line[OURS], line[THEIRS]
        pairs = [(o.load, t.load) for o, t in zip(found[n, OURS], found[n, THEIRS], strict=True)]
        line["times"] = round(statistics.median(t / o for o, t in pairs if o and t), 2)
        if results.json:
            say(**line)
        table.write(
            f"| {n} | {line['plain']['ttft_ms']} | {line[LOCAL]['ttft_ms']} | "
            f"{ours['ttft_ms']} | {theirs['ttft_ms']} | {ours['load_ms']} | {theirs['load_ms']} | "
            f"{line['times']} |\n"
        )
    say(what="memory of the servers, MiB", way=way, **used)


# ---- restart


def restart(model: str, way: str) -> None:
    """Under an engine that lives on: how soon it serves, and what is found again."""
    size = 2048
    for fault, disk in ((signal.SIGTERM, 0), (signal.SIGTERM, 4), (signal.SIGKILL, 4)):
        with ExitStack() as stack:
            _restart_both(stack, model, way, fault, disk, size)


def _restart_both(
    stack: ExitStack, model: str, way: str, fault: signal.Signals, disk: int, size: int
) -> None:
    persist = Path(tempfile.mkdtemp(prefix="kvc-bench.", dir="/dev/shm"))
    stack.callback(shutil.rmtree, persist, ignore_errors=True)
    made = servers(stack, 1.0, way, disk=disk, **{"host.persist": str(persist)})
    asked, kept = (prompt(tokens(size, name)) for name in ("restart", "kept"))
    case = {"what": "restart", "way": way, "by": f"{fault.name}, {'disk' if disk else 'no disk'}"}
    for who, server in made.items():
        with tried(who, server, **case):
            found = _restart_one(model, who, server, fault, asked, kept)
            say(who=who, **case, tokens=size, **found)


def _restart_one(
    model: str, who: str, server: Any, fault: signal.Signals, asked: list[int], kept: list[int]
) -> dict[str, Any]:
    """kept: nobody asks for it between the fault and the new engine: what it has is from before."""
    with engine(model, who, server) as living:
        Ask(living, prompt(tokens(512, "warm")))
        first = Ask(living, kept)
        computed, before = Ask(living, asked), Ask(living, asked)
        time.sleep(3)  # what is written behind
        used, stored = server.memory(), peer.stored(server.dir)
        server.end(fault)
        down = Ask(living, asked)
        began = time.monotonic()
        server.start()
        starts = time.monotonic() - began
        after = [Ask(living, asked) for _ in range(3)]
    with engine(model, who, server) as fresh:
        Ask(fresh, prompt(tokens(512, "warm")))
        old, new = Ask(fresh, kept), Ask(fresh, asked)
    return {
        "computed": computed.figures(),
        "before": before.figures(),
        "while_down": down.figures(),
        "starts_s": round(starts, 2),
        "after": [a.figures() for a in after],
        "new_engine": new.figures(),
        "new_engine_from_before": old.figures(),
        "memory_MiB": used,
        "stored_MiB": stored,
        "same_answers": len({a.tokens for a in (computed, before, down, *after, new)}) == 1
        and old.tokens == first.tokens,
    }


# ---- killed


def _die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def dies(who: str, when: str, way: str) -> Iterator[None]:
    """Engines that are forked meanwhile kill themselves between begin and end of a transfer."""
    if who == OURS:
        from kvcache_client import Hold
        from kvcache_client.vllm.worker import WorkerSide

        place: tuple[Any, str] = (WorkerSide, "_send") if when == "store" else (Hold, "load_pages")
    else:
        from lmcache.v1.multiprocess.transfer_context.pickle import EngineDrivenContextPickle
        from lmcache.v1.multiprocess.transfer_context.shm import EngineDrivenContextShm

        name = "commit_store" if when == "store" else "commit_retrieve"
        place = (EngineDrivenContextShm if way == "shm" else EngineDrivenContextPickle, name)
    kind, name = place
    good: Callable[..., Any] = getattr(kind, name)

    def send(self: Any, *arguments: Any) -> Any:
        good(self, *arguments)  # the daemon has the request, and copies
        _die()

    setattr(kind, name, send if name == "_send" else _die)
    try:
        yield
    finally:
        setattr(kind, name, good)


def killed(model: str, way: str) -> None:
    """What another engine finds afterwards."""
    for when in ("store", "load"):
        with ExitStack() as stack:
            made = servers(stack, 1.0, way)
            case = {"what": "killed", "when": when, "way": way}
            for who, server in made.items():
                with tried(who, server, **case):
                    say(who=who, **case, **_killed_one(model, who, server, when, way))


def _killed_one(model: str, who: str, server: Any, when: str, way: str) -> dict[str, Any]:
    size = 2048
    prefix = tokens(size, "killed")
    with engine(model, who, server) as other:
        Ask(other, prompt(tokens(512, "warm"), 0))
        if when == "load":
            Ask(other, prompt(prefix, 0))
        used = server.memory()
        with dies(who, when, way):
            victim = engine(model, who, server)
        try:
            victim.generate([prompt(prefix, "victim")])
        except RuntimeError:
            pass  # it is gone, as it should be
        else:
            raise EngineError(f"the engine did not die in a {when}")
        finally:
            victim.close()
        left = server.memory()
        same, until = [], None
        began = time.monotonic()
        while until is None and time.monotonic() - began < 45:
            same.append(Ask(other, prompt(prefix, len(same))))
            if same[-1].cached >= size:
                until = time.monotonic() - began
        later = []
        for i in range(6):  # more than memory has room for: the oldest has to go
            fresh = tokens(size, "after", i)
            Ask(other, prompt(fresh, 0))
            later.append(Ask(other, prompt(fresh, 1)))
    return {
        "same": [a.figures() for a in same[:3]],
        "asked": len(same),
        "whole_after_s": None if until is None else round(until, 1),
        "others": [a.figures() for a in later],
        "memory_before_MiB": used,
        "memory_after_the_kill_MiB": left,
    }


# ---- disk


def disk(model: str, way: str, limit: float, rounds: int) -> None:
    """Prefixes of 2,048 tokens, 256 MiB each, in 1 GiB of memory and a disk with a limit in GiB.

    A side at a time stores them all; then another engine of each asks for all, in turns.
    """
    size, n = 2048, 12
    prefixes = [tokens(size, "disk", i) for i in range(n)]
    with ExitStack() as stack:
        made = servers(stack, 1.0, way, disk=limit)
        asks: dict[str, list[Ask]] = {w: [] for w in made}
        most = dict.fromkeys(made, 0)
        for who, server in made.items():
            with engine(model, who, server) as first:
                for i, prefix in enumerate(prefixes):
                    Ask(first, prompt(prefix, "first", i))
                    most[who] = max(most[who], peer.stored(server.dir))
        time.sleep(5)
        engines = {w: stack.enter_context(engine(model, w, s)) for w, s in made.items()}
        for e in engines.values():
            Ask(e, prompt(tokens(512, "warm"), 0))
        for r in range(rounds):
            for i, prefix in enumerate(prefixes):
                for who in (OURS, THEIRS) if i % 2 else (THEIRS, OURS):
                    asks[who].append(Ask(engines[who], prompt(prefix, r, i)))
                    most[who] = max(most[who], peer.stored(made[who].dir))
        for who, all_ in asks.items():
            whole = [a for a in all_ if a.cached >= size]
            say(
                what="disk",
                who=who,
                way=way,
                tokens=size,
                limit_MiB=round(limit * 1024),
                most_stored_MiB=most[who],
                hit_ratio=round(statistics.mean(a.cached / size for a in all_), 4),
                ttft_ms=round(statistics.median(a.ttft for a in all_), 1),
                whole=len(whole),
                asked=len(all_),
                ttft_of_whole_ms=_median([a.ttft for a in whole]),
                load_of_whole_ms=_median([a.load for a in whole]),
                memory_MiB=made[who].memory(),
            )


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 1) if values else None


# ---- others


def others(model: str) -> None:
    """Connectors that are tried, and what their engines say."""
    for name in ("OffloadingConnector", "SimpleCPUOffloadConnector", "LMCacheConnectorV1"):
        transfer = {"kv_connector": name, "kv_connector_module_path": None}
        extra = {"cpu_bytes_to_use": _gib, "num_cpu_blocks": 64}
        try:
            options = {"block_size": 128, "enable_prefix_caching": False}
            with Engine(model, connector=extra, transfer=transfer, **options) as made:
                answers = [Ask(made, prompt(tokens(1024, "tried"), i)) for i in range(3)]
                lines = Path(made.log).read_text(errors="replace").splitlines()
                wrong = [x[-300:] for x in lines if "ERROR" in x or "Error" in x]
                say(what=name, runs=[a.figures() for a in answers], said=wrong[-3:])
        except (EngineError, RuntimeError) as error:
            say(what=name, runs=False, said=str(error)[-400:])


def main() -> None:
    """Tables or JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["load", "restart", "killed", "disk", "others"])
    parser.add_argument("--tokens", default="1024,2048,4096,8192")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--way", choices=["shm", "socket"], default="shm")
    parser.add_argument("--disk-gib", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    results.json = a.json
    models = Path(os.environ["KVC_MODELS"])
    model = str(make("wide", models / "wide"))
    try:
        _measure(a, model)
    finally:
        results.tables()


def _measure(a: argparse.Namespace, model: str) -> None:
    if a.what == "load":
        load(model, [int(n) for n in a.tokens.split(",")], a.rounds, a.way)
    elif a.what == "others":
        others(model)
    elif a.what == "disk":
        disk(model, a.way, a.disk_gib, a.rounds)
    else:
        {"restart": restart, "killed": killed}[a.what](model, a.way)


if __name__ == "__main__":
    import vllm
    import vllm.v1.engine.core
    import vllm.v1.engine.llm_engine
    import vllm.v1.worker.cpu_worker  # noqa: F401

    peer.install(Path(os.environ["KVC_MODELS"]).parent / "lmcache")
    peer.mend_start()
    peer.watch_loads()
    try:
        main()
    except (EngineError, RuntimeError) as error:
        raise SystemExit(f"lmcache.sh: {error}") from None
