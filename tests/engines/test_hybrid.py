# SPDX-License-Identifier: Apache-2.0
"""Models with several KV cache groups: sliding windows, linear attention."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from model import make
from rig import Answer, Daemon, Engine, patient, report, tokens
from test_engine import MODELS, Talk, cached


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.close()


def test_window(daemon: Daemon) -> None:
    """Sliding windows and full attention: every prefix is reused."""
    model = str(make("window", MODELS / "window"))
    with Engine(model, enable_prefix_caching=False) as plain:
        talk = Talk.hold(plain)
    with Engine(model, connector=patient(daemon)) as first:
        talk.same(talk.again(first))
    with Engine(model, connector=patient(daemon)) as second:
        answers = []
        for prompts in talk.prompts:
            answers.append(second.generate(prompts))
            second.call("reset_prefix_cache")
    talk.same(answers)
    share = cached(answers) / talk.reusable()
    report(f"sliding window: {share:.1%} of {talk.reusable()} reusable prompt tokens loaded")
    assert share >= 0.95


def test_linear(daemon: Daemon) -> None:
    """Linear and full attention: the state at the last block's end that a step reached.

    vLLM makes blocks as large as a state, and computes GDN on a CPU in bfloat16 only.
    """
    model = str(make("linear", MODELS / "linear"))
    more = {"mamba_cache_mode": "align", "dtype": "bfloat16", "block_size": None}
    books = [tokens(1200, "book", i) for i in range(2)]
    asked = [[book + tokens(20, "asked", i, j) for i, book in enumerate(books)] for j in range(2)]
    with Engine(model, enable_prefix_caching=False, **more) as plain:
        truth = [plain.generate(prompts) for prompts in asked]
    with Engine(model, connector=patient(daemon), **more) as first:
        answers = first.generate(asked[0])
    same(truth[0], answers)
    with Engine(model, connector=patient(daemon), **more) as second:
        answers = second.generate(asked[1])
    same(truth[1], answers)
    report(f"linear attention: {[a.cached for a in answers]} of 1200 tokens each loaded")
    assert all(a.cached >= 600 for a in answers)


def same(truth: list[Answer], answers: list[Answer]) -> None:
    """bfloat16: prefixes that were computed in other chunks differ in the last bits."""
    for a, b in zip(truth, answers, strict=True):
        off = max(abs(x - y) for x, y in zip(a.logprobs[:1], b.logprobs[:1], strict=True))
        assert off < 0.05, (a.logprobs, b.logprobs)
        assert a.tokens[:1] == b.tokens[:1]
