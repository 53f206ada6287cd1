#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small random Llama models of Hugging Face's transformers, and the logits that it computes.

    make_llama.py DIR

makes DIR/bf16 (grouped heads, weights in bf16, a head of its own) and DIR/tied (one KV head for all,
fp32, embeddings as the head, two files with an index): config.json and *.safetensors as transformers
saves them, and logits.safetensors with `tokens` and `logits`. Needs torch and transformers; what it
made with 5.19 lies in llama/ beside this file, for test_worker_llama.
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS = 48


def make(directory, seed, dtype, **config):
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(initializer_range=0.15, max_position_embeddings=128,
                                         bos_token_id=None, eos_token_id=None, **config))
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    model = model.to(dtype).eval()
    size = {"max_shard_size": "40KB"} if config["tie_word_embeddings"] else {}
    model.save_pretrained(directory, safe_serialization=True, **size)
    (directory / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(0, config["vocab_size"], (1, TOKENS))
    # Weights as they are kept, sums in fp32: as the worker computes.
    model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(tokens).logits[0]
    save_file({"tokens": tokens[0].to(torch.int32), "logits": logits.contiguous()},
              directory / "logits.safetensors")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    make(root / "bf16", 1, torch.bfloat16, vocab_size=64, hidden_size=64, intermediate_size=80,
         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
         rope_theta=100000.0, tie_word_embeddings=False)
    make(root / "tied", 2, torch.float32, vocab_size=64, hidden_size=48, intermediate_size=64,
         num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-6,
         tie_word_embeddings=True)


if __name__ == "__main__":
    main()
