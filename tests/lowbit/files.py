"""Small GGUF files of a llama, written by the gguf package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from torch import Tensor

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def random_blocks(kind: Kind, rows: int, blocks: int, seed: int = 0) -> np.ndarray:
    """u8[rows, blocks, bytes] of a type, with scales that are finite."""
    random = np.random.default_rng(seed)
    size = gguf.GGML_QUANT_SIZES[kind][1]
    raw = random.integers(0, 256, (rows, blocks, size), np.uint8)
    at = {Kind.Q6_K: [208], Kind.Q4_1: [0, 2], Kind.Q4_K: [0, 2], Kind.Q5_K: [0, 2]}.get(kind, [0])
    for start in [] if kind == Kind.MXFP4 else at:
        scale = random.normal(0, 0.01, (rows, blocks, 1)).astype(np.float16)
        raw[..., start : start + 2] = scale.view(np.uint8)
    if kind == Kind.MXFP4:
        raw[..., 0] = random.integers(0, 255, (rows, blocks))
    return raw


def llama(seed: int = 0, **changes: Any) -> Any:
    """A LlamaForCausalLM of two layers, with grouped queries."""
    import transformers

    torch.manual_seed(seed)
    sizes = {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    config = transformers.LlamaConfig(**{**sizes, **changes}, initializer_range=0.2)
    model = transformers.LlamaForCausalLM(config).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.input_layernorm.weight, 1, 0.2)
    return model


def turned(weight: Tensor, heads: int) -> Tensor:
    """Rows of q and k as llama.cpp's converter orders them (convert_hf_to_gguf.py, `permute`)."""
    halves = weight.reshape(heads, 2, len(weight) // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write(
    path: Path, model: Any, kind: Kind, metadata: dict[str, Any] | None = None, name: str = "llama"
) -> Path:
    """Writes the file, and gives the model the weights that the file's blocks stand for."""
    config, writer = model.config, gguf.GGUFWriter(path, name)
    facts = {
        "embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size,
        "block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
    }  # fmt: skip
    for key, value in facts.items():
        writer.add_uint32(f"{name}.{key}", value)
    writer.add_float32(f"{name}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_token_list(["a", "b"])
    for key, value in (metadata or {}).items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))

    def add(name: str, parameter: Tensor, heads: int = 0) -> None:
        values = turned(parameter, heads) if heads else parameter
        if values.dim() == 1:
            writer.add_tensor(name, values.detach().numpy())
            return
        raw = quantize(values.detach().numpy(), kind)
        writer.add_tensor(name, raw, raw_dtype=kind)
        exact = torch.from_numpy(dequantize(raw, kind)).reshape(parameter.shape)
        order = turned(torch.arange(len(values)), heads) if heads else torch.arange(len(values))
        with torch.no_grad():
            parameter[order] = exact

    add("token_embd.weight", model.model.embed_tokens.weight)
    add("output_norm.weight", model.model.norm.weight)
    if not config.tie_word_embeddings:
        add("output.weight", model.lm_head.weight)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for i, layer in enumerate(model.model.layers):
        for place, tensor in NAMES.items():
            module = layer.get_submodule(place)
            for part, parameter in module.named_parameters():
                add(f"blk.{i}.{tensor}.{part}", parameter, heads.get(tensor, 0))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
