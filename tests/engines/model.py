# SPDX-License-Identifier: Apache-2.0
"""Tiny models with random weights and a tokenizer of bytes.

usage: model.py KIND DIR; KIND: llama (one group), window (Gemma-3-like: sliding window and full
attention), linear (Qwen3-Next-like: linear and full attention), ranks (heads for two ranks), bench
(25 million weights), wide (128 KiB of KV a token in 32 layers, as an 8B model has in 16 bits, and
hardly any weights)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# vLLM's classes of these models, and their modules.
CLASSES = {
    "LlamaForCausalLM": "llama",
    "Gemma3ForCausalLM": "gemma3",
    "Qwen3NextForCausalLM": "qwen3_next",
}


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
    if kind in ("llama", "ranks", "bench"):
        hidden, layers = {"llama": (128, 2), "ranks": (256, 2), "bench": (512, 8)}[kind]
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
    if kind == "wide":
        return t.LlamaConfig(
            **shared,
            hidden_size=128,
            intermediate_size=128,
            num_hidden_layers=32,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=128,
            max_position_embeddings=16384,
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
    words = _tokenizer(folder, 16384 if kind == "wide" else 8192)
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(_config(kind, words), dtype=torch.float32)
    model.save_pretrained(folder)
    return folder


def adapter(folder: Path, seed: int) -> Path:
    """A LoRA adapter of the llama model: rank 8, of queries and values."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    source = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(2):
        for name, outputs in (("q_proj", 128), ("v_proj", 64)):
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{at}.lora_A.weight"] = 0.3 * torch.randn(8, 128, generator=source)
            weights[f"{at}.lora_B.weight"] = 0.3 * torch.randn(outputs, 8, generator=source)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "bias": "none"}
    config |= {"target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "llama"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
