# SPDX-License-Identifier: Apache-2.0
"""Models with several KV cache groups: sliding windows, linear attention."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from model import make
from rig import Daemon, Engine, report
from test_engine import MODELS, Talk, cached


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["window"])
def test_hybrid(kind: str, daemon: Daemon) -> None:
    model = str(make(kind, MODELS / kind))
    more = {"mamba_cache_mode": "align"} if kind == "linear" else {}
    with Engine(model, enable_prefix_caching=False) as plain:
        talk = Talk.hold(plain)
    with Engine(model, connector={"socket": daemon.socket}, **more) as first:
        talk.same(talk.again(first))
    with Engine(model, connector={"socket": daemon.socket}, **more) as second:
        answers = []
        for prompts in talk.prompts:
            answers.append(second.generate(prompts))
            second.call("reset_prefix_cache")
    talk.same(answers)
    share = cached(answers) / talk.reusable()
    report(f"{kind}: {share:.1%} of {talk.reusable()} reusable prompt tokens loaded")
    assert share >= 0.95
