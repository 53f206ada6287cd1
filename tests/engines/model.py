# SPDX-License-Identifier: Apache-2.0
"""Tiny models with random weights and a tokenizer of bytes.

usage: model.py KIND DIR; KIND: llama (one group), window (Gemma-3-like: sliding window and full
attention), linear (Qwen3-Next-like: linear and full attention), bench (25 million weights)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def _tokenizer(folder: Path, positions: int) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {c: i for i, c in enumerate([*alphabet, "<s>", "</s>", "<pad>"])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=None))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        model_max_length=positions,
    )
    fast.save_pretrained(folder)
    return len(vocabulary)


def _config(kind: str, words: int) -> Any:
    import transformers as t

    # A range large enough that greedy output depends on the whole prompt.
    shared = {"vocab_size": words, "initializer_range": 0.12, "tie_word_embeddings": False}
    shared |= {"bos_token_id": words - 3, "eos_token_id": words - 2, "pad_token_id": words - 1}
    if kind in ("llama", "bench"):
        hidden, layers = (512, 8) if kind == "bench" else (128, 2)
        return t.LlamaConfig(
            **(shared | {"initializer_range": 0.08} if kind == "bench" else shared),
            hidden_size=hidden,
            intermediate_size=hidden * 3,
            num_hidden_layers=layers,
            num_attention_heads=hidden // 64,
            num_key_value_heads=hidden // 128,
            head_dim=64,
            max_position_embeddings=8192,
        )
    if kind == "window":
        return t.Gemma3TextConfig(
            **shared,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=6,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=64,
            sliding_window=64,
            max_position_embeddings=8192,
            query_pre_attn_scalar=64,
            layer_types=["sliding_attention"] * 2
            + ["full_attention"]
            + ["sliding_attention"] * 2
            + ["full_attention"],
        )
    if kind == "linear":
        return t.Qwen3NextConfig(
            **shared,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=64,
            linear_num_value_heads=2,
            linear_num_key_heads=1,
            linear_key_head_dim=128,
            linear_value_head_dim=128,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            shared_expert_intermediate_size=64,
            max_position_embeddings=8192,
        )
    raise SystemExit(__doc__)


def make(kind: str, folder: Path) -> Path:
    """Makes the model if it is not there."""
    if (folder / "config.json").exists():
        return folder
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    words = _tokenizer(folder, 8192)
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(_config(kind, words), dtype=torch.float32)
    model.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
