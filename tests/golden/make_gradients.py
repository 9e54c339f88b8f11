#!/usr/bin/env python3
"""Losses and gradients of small decoders by PyTorch, for tests/exec/test_gradients.c.

Needs torch (Debian: python3-torch). Run here: writes gradients/NAME.safetensors, with the
model's config.json and its sizes as notes. Tensors: ids [batch, length + 1], loss, and for
each weight of extended layer L "weights.L.PART" and "gradients.L.PART", in the layout of
step/weights.h. Every model is written out as its family does it in Hugging Face's code, in
double precision, from weights rounded to fp32.
"""

import json
import math
import struct

import torch

torch.set_default_dtype(torch.float64)


class Model:
    """Weights by (layer, part); each is made where it is first asked for."""

    def __init__(self, config, batch, length, seed):
        self.c = config
        self.generator = torch.Generator().manual_seed(seed)
        self.weights = {}
        self.ids = torch.randint(0, config["vocab_size"], (batch, length + 1),
                                 generator=self.generator, dtype=torch.int32)

    def weight(self, layer, part, *shape, mean=0.0, std=0.3):
        key = "%d.%s" % (layer, part)
        if key not in self.weights:
            value = torch.randn(*shape, generator=self.generator) * std + mean
            self.weights[key] = value.float().double().requires_grad_(True)
        return self.weights[key]

    def layer_norm(self, x, layer, part):
        w = self.weight(layer, part, 2, x.shape[-1], mean=0.5)
        return torch.nn.functional.layer_norm(x, x.shape[-1:], w[0], w[1], self.c["layer_norm_epsilon"])

    def rms_norm(self, x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * w

    def rms(self, x, layer, part):
        return self.rms_norm(x, self.weight(layer, part, 1, x.shape[-1], mean=1.0)[0])


def attend(q, k, v, window):
    """q [b, heads, s, d]; k, v [b, kv heads, s, d]."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    at = torch.arange(q.shape[2])
    hidden = at[None, :] > at[:, None]
    if window:
        hidden |= at[None, :] <= at[:, None] - window
    return (scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v)


def heads_of(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten().long())


def gpt2(m):
    c, h = m.c, m.c["n_embd"]
    inner = c["n_inner"]
    gelu = {"gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
            "gelu": torch.nn.functional.gelu}[c["activation_function"]]
    inputs, targets = m.ids[:, :-1].long(), m.ids[:, 1:]
    table = m.weight(0, "embedding", c["vocab_size"], h)
    x = table[inputs] + m.weight(0, "positions", c["n_positions"], h)[: inputs.shape[1]]
    for layer in range(1, c["n_layer"] + 1):
        y = m.layer_norm(x, layer, "attention_norm")
        y = y @ m.weight(layer, "qkv", 3 * h, h).T + m.weight(layer, "qkv_bias", 3 * h)
        q, k, v = (heads_of(part, c["n_head"]) for part in y.split(h, -1))
        y = attend(q, k, v, 0).transpose(1, 2).reshape(x.shape)
        x = x + y @ m.weight(layer, "out", h, h).T + m.weight(layer, "out_bias", h)
        y = m.layer_norm(x, layer, "mlp_norm")
        y = gelu(y @ m.weight(layer, "up", inner, h).T + m.weight(layer, "up_bias", inner))
        x = x + y @ m.weight(layer, "down", h, inner).T + m.weight(layer, "down_bias", h)
    x = m.layer_norm(x, c["n_layer"] + 1, "final_norm")
    return loss_of(x @ table.T, targets)


def rotary(x, c):
    """x [b, heads, s, d]; rotate_half, with Llama 3.1's scaling where the config says so."""
    d, s = x.shape[-1], x.shape[2]
    frequency = c["rope_theta"] ** (-torch.arange(0, d, 2).double() / d)
    scaling = c.get("rope_scaling")
    if scaling:
        wave = 2 * math.pi / frequency
        original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = (original / wave - low) / (high - low)
        mixed = (1 - smooth) * frequency / factor + smooth * frequency
        frequency = torch.where(wave > original / low, frequency / factor,
                                torch.where(wave < original / high, frequency, mixed))
    angle = torch.arange(s).double()[:, None] * frequency
    angle = torch.cat((angle, angle), -1)
    half = torch.cat((-x[..., d // 2:], x[..., : d // 2]), -1)
    return x * angle.cos() + half * angle.sin()


def experts(m, layer, y):
    c, h, f = m.c, m.c["hidden_size"], m.c.get("moe_intermediate_size", m.c["intermediate_size"])
    count = c.get("num_local_experts", c.get("num_experts"))
    top = c["num_experts_per_tok"]
    flat = y.reshape(-1, h)
    share = (flat @ m.weight(layer, "router", count, h).T).softmax(-1)
    best, index = share.topk(top, -1)
    if c.get("norm_topk_prob", True):
        best = best / best.sum(-1, keepdim=True)
    up, down = m.weight(layer, "expert_up", count, 2 * f, h), m.weight(layer, "expert_down", count, h, f)
    out = torch.zeros_like(flat)
    for e in range(count):
        token, place = (index == e).nonzero(as_tuple=True)
        gate, other = (flat[token] @ up[e].T).split(f, -1)
        made = (torch.nn.functional.silu(gate) * other) @ down[e].T
        out = out.index_add(0, token, made * best[token, place, None])
    return out.view(y.shape)


def llama(m):
    c, h = m.c, m.c["hidden_size"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    d = c.get("head_dim", h // heads)
    window = c.get("sliding_window") or 0
    last = c["num_hidden_layers"] + 1
    inputs, targets = m.ids[:, :-1].long(), m.ids[:, 1:]
    table = m.weight(0, "embedding", c["vocab_size"], h)
    x = table[inputs]
    for layer in range(1, last):
        y = m.rms(x, layer, "attention_norm")
        y = y @ m.weight(layer, "qkv", (heads + 2 * kv) * d, h).T
        if c["model_type"] == "qwen2":
            y = y + m.weight(layer, "qkv_bias", (heads + 2 * kv) * d)
        q, k, v = y.split((heads * d, kv * d, kv * d), -1)
        q, k, v = heads_of(q, heads), heads_of(k, kv), heads_of(v, kv)
        if c["model_type"] == "qwen3_moe":
            w = m.weight(layer, "qk_norm", 2, d, mean=1.0)
            q, k = m.rms_norm(q, w[0]), m.rms_norm(k, w[1])
        y = attend(rotary(q, c), rotary(k, c), v, window).transpose(1, 2).flatten(2)
        x = x + y @ m.weight(layer, "out", h, heads * d).T
        y = m.rms(x, layer, "mlp_norm")
        if "num_experts_per_tok" in c:
            x = x + experts(m, layer, y)
        else:
            f = c["intermediate_size"]
            gate, up = (y @ m.weight(layer, "up", 2 * f, h).T).split(f, -1)
            x = x + (torch.nn.functional.silu(gate) * up) @ m.weight(layer, "down", h, f).T
    x = m.rms(x, last, "final_norm")
    head = table if c["tie_word_embeddings"] else m.weight(last, "head", c["vocab_size"], h)
    return loss_of(x @ head.T, targets)


GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 20, "n_head": 5, "n_inner": 28,
        "n_positions": 13, "vocab_size": 37, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new"}
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 20,
         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 37,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 500.0,
         "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
         "hidden_act": "silu", "tie_word_embeddings": False}
MIXTRAL = {"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 24,
           "intermediate_size": 12, "num_attention_heads": 3, "num_key_value_heads": 3,
           "vocab_size": 37, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
           "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
           "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 4}
QWEN2 = {"model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 18, "intermediate_size": 22,
         "num_attention_heads": 3, "num_key_value_heads": 1, "vocab_size": 37,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 100.0,
         "hidden_act": "silu", "tie_word_embeddings": True}
QWEN3 = {"model_type": "qwen3_moe", "num_hidden_layers": 1, "hidden_size": 18, "head_dim": 10,
         "intermediate_size": 22, "moe_intermediate_size": 9, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 37, "max_position_embeddings": 64,
         "rms_norm_eps": 1e-6, "rope_theta": 100.0, "hidden_act": "silu",
         "tie_word_embeddings": True, "num_experts": 7, "num_experts_per_tok": 3,
         "norm_topk_prob": False, "decoder_sparse_step": 1}

CASES = {
    "gpt2": (gpt2, GPT2),
    "gpt2_erf": (gpt2, dict(GPT2, n_layer=1, activation_function="gelu")),
    "llama": (llama, LLAMA),
    "mixtral": (llama, MIXTRAL),
    "qwen2": (llama, QWEN2),
    "qwen3_moe": (llama, QWEN3),
}


def write(path, tensors, notes):
    kinds = {torch.float32: "F32", torch.int32: "I32"}
    header, data = {"__metadata__": notes}, b""
    for name, value in tensors.items():
        value = value.detach()
        value = value.float() if value.dtype == torch.float64 else value
        raw = bytes(value.contiguous().view(torch.uint8).flatten().tolist()) if value.dim() else \
            bytes(value.view(1).contiguous().view(torch.uint8).tolist())
        header[name] = {"dtype": kinds[value.dtype], "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    for seed, (name, (forward, config)) in enumerate(CASES.items()):
        model = Model(config, 2, 11, seed)
        loss = forward(model)
        loss.backward()
        tensors = {"ids": model.ids, "loss": loss}
        for key, value in model.weights.items():
            tensors["weights." + key] = value
            tensors["gradients." + key] = value.grad
        write("gradients/%s.safetensors" % name, tensors, {"config": json.dumps(config)})
        print(name, float(loss))


if __name__ == "__main__":
    main()
