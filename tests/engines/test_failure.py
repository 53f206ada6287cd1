# SPDX-License-Identifier: Apache-2.0
"""A daemon that is killed and frozen while requests run: nobody notices but the log."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from model import make
from rig import Answer, Daemon, Engine, report, tokens
from test_engine import MODELS, differs

SEED = int(os.environ.get("KVC_SEED", str(random.randrange(10**6))))


@pytest.fixture(scope="module")
def model() -> str:
    return str(make("llama", MODELS / "llama"))


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon(storage=True)
    yield made
    made.close()


def rounds(number: int, requests: int) -> list[list[list[int]]]:
    """Prompts of each round: four share a document, and each comes back in later rounds."""
    return [
        [
            tokens(224, "document", (r * requests + i) // 4 % 25) + tokens(40, "asked", r, i)
            for i in range(requests)
        ]
        for r in range(number)
    ]


def play(
    engine: Engine, prompts: list[list[list[int]]], *, durable: bool = False
) -> tuple[list[Answer], list[float]]:
    """Answers of all rounds, and seconds of each; durable: what is stored outlives the daemon."""
    answers, seconds = [], []
    for prompt in prompts:
        began = time.monotonic()
        answers += engine.generate(prompt, [{"durable": True}] * len(prompt) if durable else None)
        seconds.append(time.monotonic() - began)
    return answers, seconds


def disturbed(
    engine: Engine, daemon: Daemon, prompts: list[list[list[int]]], faults: list[str], usual: float
) -> tuple[list[Answer], list[float]]:
    """The same, with a fault at a random moment of each round."""
    source = random.Random(SEED)
    answers, seconds = [], []
    for prompt, fault in zip(prompts, faults, strict=True):
        began = time.monotonic()
        engine.begin(prompt)
        time.sleep(source.random() * usual)
        daemon.signal(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        answers += engine.end()
        seconds.append(time.monotonic() - began)
        if fault == "kill":
            daemon.kill()  # waits for its end
            daemon.start()
        else:
            daemon.signal(signal.SIGCONT)
    return answers, seconds


def run(model: str, daemon: Daemon, kills: int, freezes: int, requests: int) -> None:
    prompts = rounds(kills + freezes, requests)
    faults = ["kill"] * kills + ["freeze"] * freezes
    random.Random(SEED).shuffle(faults)
    with Engine(model) as plain:
        truth, _ = play(plain, prompts)
    with Engine(model, connector={"socket": daemon.socket}, enable_prefix_caching=False) as engine:
        play(engine, prompts, durable=True)
        quiet, usual = play(engine, prompts)
        answers, seconds = disturbed(
            engine, daemon, prompts, faults, sorted(usual)[len(usual) // 2]
        )
        changes = engine.changes()
    for got in (quiet, answers):
        assert all(a.finish == "length" for a in got), f"seed {SEED}: a request failed"
        wrong = [i for i, (a, b) in enumerate(zip(truth, got, strict=True)) if differs(a, b)]
        assert not wrong, f"seed {SEED}: other answers for {wrong}"
    added = sorted(b - a for a, b in zip(usual, seconds, strict=True))
    by_fault = {
        f: max((s - u for s, u, g in zip(seconds, usual, faults, strict=True) if g == f), default=0)
        for f in ("kill", "freeze")
    }
    usual_s = sorted(usual)[len(usual) // 2]
    report(
        f"{len(answers)} requests, {kills} kills, {freezes} freezes (seed {SEED}): 0 failed, 0 "
        f"wrong; a round of {requests} takes {usual_s:.2f} s, and longer by "
        f"{added[len(added) // 2]:.2f} s (median), {by_fault['kill']:.2f} s (most, killed), "
        f"{by_fault['freeze']:.2f} s (most, frozen); {sum(a.cached for a in answers)} tokens loaded"
    )
    assert changes, "nobody has noticed anything"
    for said in changes.values():  # once, until there is something new
        assert all(a != b for a, b in pairwise(said)), changes


def test_killed_and_frozen(model: str, daemon: Daemon) -> None:
    run(model, daemon, kills=2, freezes=1, requests=6)


@pytest.mark.long
def test_killed_and_frozen_often(model: str, daemon: Daemon) -> None:
    run(model, daemon, kills=20, freezes=5, requests=20)
