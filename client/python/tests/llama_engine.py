# SPDX-License-Identifier: Apache-2.0
"""A process with llama.cpp (cyllama) and SmolLM2-135M, for test_llamacpp.py.

llama_engine.py REQUEST: an object of JSON with "model", "socket" and "tokens" or "text". What is
saved of the tokens is restored, the others are computed, "save" saves them, and 1 + "most" tokens
follow greedily. Prints an object of JSON.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from typing import Any

import cyllama
from cyllama.llama import llama_cpp

import kvcache_client as kv
from kvcache_client.llamacpp import SequenceStates, StateFacts


class Engine:
    """One sequence of one context."""

    def __init__(self, path: str, n_ctx: int, type_k: int) -> None:
        params = llama_cpp.LlamaContextParams()
        params.n_ctx, params.type_k = n_ctx, type_k
        params.n_threads = params.n_threads_batch = 1  # two wait for each other on a busy machine
        self.model = llama_cpp.LlamaModel(path, verbose=False)
        self.context = llama_cpp.LlamaContext(self.model, params, verbose=False)
        self.vocab = self.model.get_vocab()
        self.greedy = llama_cpp.LlamaSampler(llama_cpp.LlamaSamplerChainParams())
        self.greedy.add_greedy()
        self.done = 0

    def compute(self, tokens: list[int]) -> int:
        """The likeliest token behind the last one."""
        for at in range(0, len(tokens), 512):
            part = tokens[at : at + 512]
            batch = llama_cpp.LlamaBatch(n_tokens=len(part), embd=0, n_seq_max=1)
            for i, token in enumerate(part):
                batch.add(token, self.done + i, [0], i == len(part) - 1)
            self.context.decode(batch)
            self.done += len(part)
        return int(self.greedy.sample(self.context, -1))


def answer(ask: dict[str, Any]) -> dict[str, Any]:
    """What the request asks for."""
    engine = Engine(ask["model"], ask.get("n_ctx", 1024), ask.get("type_k", 1))
    tokens = ask.get("tokens") or engine.vocab.tokenize(ask["text"], True, True)
    build = ask.get("build", f"cyllama {cyllama.__version__} {llama_cpp.ggml_commit()}")
    context = engine.context
    with kv.Session(socket=ask["socket"], staging_bytes=8 << 20, timeout_ms=20000) as session:
        facts = StateFacts.of(context.params, context.n_ctx, [ask["model"]], build=build)
        states = SequenceStates.of(session, facts, context)
        engine.done = restored = states.restore(tokens) if ask.get("restore", True) else 0
        saved = None
        if restored < len(tokens) - 1:
            engine.compute(tokens[restored:-1])
        if ask.get("save"):
            saved = states.save(tokens[:-1], durable=ask.get("durable", False))
        said = [engine.compute(tokens[-1:])]
        for _ in range(ask.get("most", 16)):
            said.append(engine.compute(said[-1:]))
        if ask.get("save"):
            saved = saved and states.save(tokens + said[:-1], durable=ask.get("durable", False))
    return {
        "tokens": tokens,
        "restored": restored,
        "saved": saved,
        "said": said,
        "text": engine.vocab.detokenize(said),
        "state": sha256(context.get_state_seq_data(0)).hexdigest(),
    }


if __name__ == "__main__":
    print(json.dumps(answer(json.loads(sys.argv[1]))))  # noqa: T201
