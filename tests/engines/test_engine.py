# SPDX-License-Identifier: Apache-2.0
"""Real engines: what they say is the same with the connector, and the KV comes from the daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model import adapter, make
from rig import Answer, Daemon, Engine, conversations, patient, report, tokens

MODELS = Path(os.environ["KVC_MODELS"])
BLOCK = 32
TURNS = int(os.environ.get("KVC_TURNS", "3"))
PEOPLE = int(os.environ.get("KVC_PEOPLE", "2"))  # x TURNS prompts
TRIALS = int(os.environ.get("KVC_TRIALS", "4"))  # of corrupt blocks


@pytest.fixture(scope="module")
def model() -> str:
    return str(make("llama", MODELS / "llama"))


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon(storage=True)
    yield made
    made.close()


class Talk:
    """All turns of all conversations; what is said in a turn depends on the answers before."""

    def __init__(self) -> None:
        self.prompts: list[list[list[int]]] = []
        self.answers: list[list[Answer]] = []

    @classmethod
    def hold(cls, engine: Engine) -> Talk:
        talk = cls()
        history: dict[int, list[int]] = {}
        for turn in conversations(PEOPLE, TURNS):
            prompts = [history.get(p, []) + said for p, said in turn]
            answers = engine.generate(prompts)
            for (p, _), prompt, answer in zip(turn, prompts, answers, strict=True):
                history[p] = prompt + list(answer.tokens)
            talk.prompts.append(prompts)
            talk.answers.append(answers)
        return talk

    def again(self, engine: Engine, wish: dict[str, Any] | None = None) -> list[list[Answer]]:
        return [engine.generate(p, [wish] * len(p) if wish else None) for p in self.prompts]

    def same(self, answers: list[list[Answer]]) -> None:
        for turn, (mine, theirs) in enumerate(zip(self.answers, answers, strict=True)):
            for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                assert a.tokens == b.tokens, f"turn {turn}, conversation {i}"
                off = max(abs(x - y) for x, y in zip(a.logprobs, b.logprobs, strict=True))
                assert off < 1e-3, (
                    f"turn {turn}, conversation {i}: a log-probability differs by {off}"
                )

    def reusable(self) -> int:
        """Prompt tokens in whole blocks, of which one token at least is left to compute."""
        return sum((len(p) - 1) // BLOCK * BLOCK for turn in self.prompts for p in turn)


def differs(a: Answer, b: Answer) -> bool:
    """Other tokens, or a log-probability that is off by 1e-3."""
    off = max(abs(x - y) for x, y in zip(a.logprobs, b.logprobs, strict=True))
    return a.tokens != b.tokens or off >= 1e-3


def cached(answers: list[list[Answer]]) -> int:
    return sum(a.cached for turn in answers for a in turn)


def test_all_say_the_same(model: str, daemon: Daemon) -> None:
    """Plain, storing beside vLLM's prefix cache, loading; after the engine's and daemon's end."""
    with Engine(model, enable_prefix_caching=False) as plain:
        talk = Talk.hold(plain)
    with Engine(model, connector=patient(daemon)) as first:
        talk.same(talk.again(first, {"durable": True}))
    for who in ("second engine", "after kill -9"):
        with Engine(model, connector=patient(daemon), enable_prefix_caching=False) as e:
            answers = talk.again(e)
            lines = e.lines()
        talk.same(answers)
        share = cached(answers) / talk.reusable()
        report(f"{who}: {share:.1%} of {talk.reusable()} reusable prompt tokens loaded")
        assert share >= 0.95, lines
        daemon.kill()
        daemon.start()


def test_a_corrupt_block_is_seen(model: str, daemon: Daemon) -> None:
    """The comparison of this file can fail: one block of each prompt changed before its commit."""
    prompts = [tokens(300, "corrupt", i) for i in range(TRIALS)]
    wrong = {"kv_connector": "Corrupting", "kv_connector_module_path": "corrupting"}
    options = patient(daemon, store_decoded=False)
    with Engine(model, connector=options, transfer=wrong, enable_prefix_caching=False) as first:
        truth = first.generate(prompts)
    with Engine(model, connector=options, enable_prefix_caching=False) as second:
        answers = second.generate(prompts)
    assert all(a.cached == 288 for a in answers)
    changed = sum(differs(a, b) for a, b in zip(truth, answers, strict=True))
    report(f"corrupt blocks: {changed} of {TRIALS} seen")
    assert changed >= 0.95 * TRIALS


def test_adapters(model: str, daemon: Daemon, tmp_path: Path) -> None:
    """LoRA: each adapter's KV is its own, and that of other weights at its path is not loaded."""
    loras = [None, *((n, i, str(adapter(tmp_path / n, i))) for i, n in enumerate("ab", start=1))]
    more = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8, "enable_prefix_caching": False}
    prompts = [tokens(200, "adapters", i) for i in range(2)]
    with Engine(model, connector=patient(daemon), **more) as first:
        truth = [first.generate(prompts, lora=lora) for lora in loras]
    adapter(tmp_path / "b", 3)
    with Engine(model, connector=patient(daemon), **more) as second:
        answers = [second.generate(prompts, lora=lora) for lora in loras]
    assert [[a.cached for a in each] for each in truth] == [[0] * 2] * 3
    assert [[a.cached for a in each] for each in answers] == [[192] * 2, [192] * 2, [0] * 2]
    for was, now in zip(truth[:2], answers[:2], strict=True):
        assert not any(differs(a, b) for a, b in zip(was, now, strict=True))
    three = [truth[0], truth[1], truth[2], answers[2]]
    assert all(len({a.tokens for a in each}) == 4 for each in zip(*three, strict=True))


@pytest.mark.long
def test_two_ranks(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor parallel: each rank stores and loads its part. vLLM spawns ranks, and each imports."""
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    model = str(make("ranks", MODELS / "ranks"))
    prompts = [tokens(200, "ranks", i) for i in range(4)]
    more = {"enable_prefix_caching": False, "tensor_parallel_size": 2}
    with Engine(model, enable_prefix_caching=False) as plain:
        truth = plain.generate(prompts)
    with Engine(model, connector=patient(daemon), **more) as first:
        stored = first.generate(prompts)
    with Engine(model, connector=patient(daemon), **more) as second:
        loaded = second.generate(prompts)
    assert [[a.cached for a in each] for each in (stored, loaded)] == [[0] * 4, [192] * 4]
    for answers in (stored, loaded):
        assert not any(differs(a, b) for a, b in zip(truth, answers, strict=True))


def test_logs_one_line(model: str, daemon: Daemon) -> None:
    """The daemon goes and comes: the engine goes on, and says so once."""
    prompts = [tokens(200, "gone", i) for i in range(4)]
    with Engine(model, connector=patient(daemon)) as engine:
        before = engine.generate(prompts)
        daemon.kill()
        without = engine.generate(prompts)
        daemon.start()
        engine.generate([tokens(200, "back", i) for i in range(4)])
        engine.call("reset_prefix_cache")
        after = engine.generate(prompts)
        changes = engine.changes()
    assert [a.tokens for a in before] == [a.tokens for a in without] == [a.tokens for a in after]
    assert all(a.finish == "length" for a in without)
    assert len(changes) == 2, changes  # the scheduler's side and the worker's
    assert all(said in (["not there"], ["not there", "back"]) for said in changes.values()), changes
