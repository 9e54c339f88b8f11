#!/usr/bin/env python3
"""Makes tests/golden/hugging_face/: tiny models that transformers saved, and their loss.

Needs torch and transformers; made with 1.13 and 4.38. Usage:
tests/golden/make_hugging_face.py"""
import json
import os

import torch
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          MixtralConfig, MixtralForCausalLM, Qwen2Config, Qwen2ForCausalLM)

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH, LENGTH, VOCAB = 2, 11, 41
SHAPE = dict(vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16)
MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(
        vocab_size=VOCAB, n_positions=16, n_embd=24, n_layer=2, n_head=4, attn_pdrop=0.0,
        embd_pdrop=0.0, resid_pdrop=0.0), torch.float32),
    "llama": (LlamaForCausalLM, LlamaConfig(rms_norm_eps=1e-6, **SHAPE), torch.bfloat16),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(tie_word_embeddings=True, **SHAPE), torch.float16),
    "mixtral": (MixtralForCausalLM, MixtralConfig(
        num_local_experts=4, num_experts_per_tok=2, sliding_window=None, **SHAPE), torch.float32),
}

for name, (kind, config, dtype) in MODELS.items():
    torch.manual_seed(7)
    folder = os.path.join(HERE, "hugging_face", name)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # far from where training begins, norms and biases too
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model = model.to(dtype)
    model.save_pretrained(folder, safe_serialization=True,
                          max_shard_size="20KB" if name == "mixtral" else "1GB")
    model = kind.from_pretrained(folder, torch_dtype=torch.float32).eval()
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH + 1))
    with torch.no_grad():
        logits = model(ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    os.remove(os.path.join(folder, "generation_config.json"))
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump({"ids": ids.reshape(-1).tolist(), "loss": loss.item()}, file)
        file.write("\n")
