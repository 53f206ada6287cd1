# SPDX-License-Identifier: Apache-2.0
"""Architectures, by the model_type of their configurations: which are known to be causal decoders.

What is in none of these tables is refused by its name: whether reuse is sound is not guessed. A
model_type goes to :data:`CAUSAL` when its code was read: no token attends to a later one, KV of
a token depends on the tokens up to it alone, and its position is embedded once.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CAUSAL", "IMAGES_SEE_THEMSELVES", "NOT_CAUSAL", "WRAPPERS"]

_ROPE = """
    afmoe apertus arcee arctic aria_text axk1 axk2 baichuan bailing_moe bamba bitnet chatglm codegen
    cohere cohere2 cohere2_moe cohere_compass_text cwm dbrx deepseek deepseek_v2 deepseek_v3
    deepseek_v32 diffllama dots1 emu3_text_model ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text exaone
    exaone4 exaone_moe falcon falcon_h1 flex_olmo gemma gemma2 gemma3 gemma3_text gemma3n
    gemma3n_text gemma4_text gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite glm4v_moe_text
    glm4v_text glm_moe_dsa glm_ocr_text gpt_neox gpt_neox_japanese gpt_oss gptj granite
    granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared
    helium hunyuan hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text hy_v3 hy_v4 hyperclovax internlm
    internlm2 internlm3 jais2 jetmoe kimi_k2 laguna lfm2 lfm2_moe llama llama4 llama4_text
    longcat_flash mellum mimo mimo_v2_flash minicpm minicpm3 minimax minimax_m1 minimax_m2
    minimax_m3_vl_text minimax_text_01 ministral ministral3 mistral mistral4 mixtral
    modernbert-decoder nanochat nemotron nemotron-nas olmo olmo2 olmo3 olmo_hybrid olmoe orion
    paddleocr_vl_text persimmon phi phi-msft phi3 phimoe plamo2 qwen qwen2 qwen2_5_omni_text
    qwen2_5_vl qwen2_5_vl_text qwen2_moe qwen2_vl qwen2_vl_text qwen3 qwen3_5_moe_text qwen3_5_text
    qwen3_moe qwen3_next qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text recurrent_gemma
    refinedweb refinedwebmodel seed_oss smollm3 solar solar_open stablelm stablelm_epoch starcoder2
    step3_text telechat vaultgemma voxtral_realtime_text xverse youtu zamba2
"""
_LEARNED = "biogpt gpt-sw3 gpt2 gpt_bigcode gpt_neo jais openai-gpt opt"
_SINUSOIDAL = "ctrl xglm"
_ALIBI = "bloom mpt"
_NONE = "falcon_mamba jamba kimi_linear mamba mamba2 nemotron_h rwkv rwkv7 xlstm zamba"

# model_type -> how positions come into KV, unless another key of the file says it: "rope" by the
# parameters of rotation; the others are the daemon's names.
CAUSAL: Final[dict[str, str]] = {
    name: scheme
    for scheme, names in {
        "rope": _ROPE,
        "learned": _LEARNED,
        "sinusoidal": _SINUSOIDAL,
        "alibi": _ALIBI,
        "none": _NONE,
    }.items()
    for name in names.split()
}

_WRAPPERS = """
    aria aya_vision cohere2_vision cohere_compass deepseek_vl deepseek_vl_v2 emu3
    ernie4_5_vl_moe exaone4_5 fast_vlm gemma3n glm46v glm4v glm4v_moe glm_ocr glmasr got_ocr2
    granite4_vision granite_speech hunyuan_vl idefics2 idefics3 internvl internvl_chat janus
    kimi_k25 kimi_vl lfm2_vl lighton_ocr llama4 llava llava_next llava_next_video llava_onevision
    minicpmv4_6 mistral3 multi_modality nemotron_h_omni ovis2 paddleocr_vl
    perception_lm pixtral qianfan_ocr qwen2_5_omni qwen2_5_omni_thinker qwen2_5_vl qwen2_audio
    qwen2_vl qwen3_5 qwen3_5_moe qwen3_asr qwen3_omni_moe qwen3_omni_moe_thinker qwen3_vl
    qwen3_vl_moe smolvlm step3_vl video_llama_3 video_llava vipllava voxtral voxtral_realtime
"""
# A model of text with images or sound among its tokens: what their text model is decides. None of
# them attends to later tokens, but for the second list, within an image.
WRAPPERS: Final = frozenset(_WRAPPERS.split())
IMAGES_SEE_THEMSELVES: Final = frozenset(("gemma3", "gemma4", "gemma4_unified"))

_ENCODER = "an encoder: each token attends to later ones"
_PAIR = "an encoder and a decoder: what the decoder keeps depends on all of the encoder's input"
_DIFFUSION = "text is made by denoising: tokens attend to later ones, and are computed again"
_PREFIX = "the tokens of a prompt attend to each other, to later ones too"
_ORDER = "tokens are predicted in another order than that of the text, and attend to later ones"

NOT_CAUSAL: Final[dict[str, str]] = {
    name: reason
    for reason, names in {
        _ENCODER: """
            albert align altclip audio-spectrogram-transformer beit bert bert-generation big_bird
            bros camembert canine chinese_clip clap clip convbert data2vec-audio data2vec-text
            data2vec-vision deberta deberta-v2 deit dinov2 dinov3_vit distilbert dpr electra
            embedding_gemma2 embedding_gemma2_text ernie esm eurobert flaubert flava fnet funnel gte
            hubert ibert jina_embeddings_v3 layoutlm layoutlmv2 layoutlmv3 lilt longformer luke
            lxmert markuplm megatron-bert mobilebert modernbert mpnet mra neobert new nezha
            nomic_bert nystromformer perceiver qdqbert rembert roberta roberta-prelayernorm roc_bert
            roformer siglip siglip2 splinter squeezebert swin t5gemma2_encoder tapas vilt
            visual_bert vit vit_mae wav2vec2 wavlm xlm-roberta xlm-roberta-xl xmod yoso
            """,
        _PAIR: """
            bart bigbird_pegasus blenderbot blenderbot-small encoder-decoder flan-t5 florence2 fsmt
            led longt5 m2m_100 marian mbart moonshine mt5 mvp nllb-moe pegasus pegasus_x pix2struct
            plbart pop2piano prophetnet rag seamless_m4t seamless_m4t_v2 speech-encoder-decoder
            speech_to_text speecht5 switch_transformers t5 t5gemma t5gemma2 trocr udop umt5
            vision-encoder-decoder whisper
            """,
        _DIFFUSION: "diffusion_gemma diffusion_gemma_text dream llada llada2_moe sdar sdar_moe",
        _PREFIX: "colpali paligemma",
        _ORDER: "xlnet",
    }.items()
    for name in names.split()
}
