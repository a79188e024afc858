"""A GGUF file of a llama as transformers' LlamaForCausalLM, whose Linears hold the file's blocks.

model = load_gguf("model.gguf")
logits = model(tokens).logits
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn

from weft.lowbit.gguf import Gguf, read
from weft.lowbit.modules import LowBitEmbedding, LowBitLinear
from weft.lowbit.storage import LowBitError, Storage

SIZES = {  # of the config: their key behind "llama."
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}
PLACES = {  # of the model's modules: the names of their tensors, behind "blk.N." in layers
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
FREQUENCIES = "rope_freqs.weight"  # divisors of them, as of Llama 3.1


def load_gguf(
    path: str | os.PathLike[str],
    dtype: torch.dtype = torch.float32,
    activations: Literal["int8"] | None = None,
) -> nn.Module:
    """A llama's GGUF file as a LlamaForCausalLM of transformers, in evaluation mode.

    Tensors keep their blocks (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q4_K, Q5_K, Q6_K, MXFP4) in
    modules of plain torch; activations are of `dtype`. With activations="int8", inputs of Linears
    of Q8_0 and Q4_0 are rounded to int8 in groups of 32, as llama.cpp does. LowBitError if the
    file is damaged, of another architecture, or has what there is no module for.
    """
    file = read(path)
    config = config_of(file, dtype)
    with torch.device("meta"):
        model: Any = import_module("transformers").LlamaForCausalLM(config).to(dtype)
    rotary = model.model.rotary_emb = type(model.model.rotary_emb)(config=config)
    if FREQUENCIES in file.entries:
        rotary.inv_freq = rotary.inv_freq / file.floats(FREQUENCIES)
    builder = Builder(file, config, activations)
    for place, module in [*model.named_modules()]:
        if hasattr(module, "weight"):
            model.set_submodule(place, builder.made(place, module))
    if builder.unread:
        raise file.error(f"the tensor {min(builder.unread)} has no place in a llama")
    return model.eval()


class Builder:
    """Makes the modules of a model from the tensors of a file; `unread` are the names left."""

    def __init__(self, file: Gguf, config: Any, activations: str | None) -> None:
        self.file, self.activations = file, activations
        self.turned = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        self.tied = config.tie_word_embeddings
        self.table: Storage | None = None  # of embeddings
        self.unread = {*file.entries} - {FREQUENCIES}

    def made(self, place: str, module: Any) -> nn.Module:
        """A module with a tensor's values, for one on the meta device."""
        layer = place.split(".")
        name = PLACES[".".join(layer[3:]) if "layers" in layer else place]
        full = f"blk.{layer[2]}.{name}" if "layers" in layer else name
        dtype, heads = module.weight.dtype, self.turned.get(name)
        if name == "output" and self.tied and self.table is not None:
            return LowBitLinear(self.table, None, dtype, self.rounds(self.table))
        storage = self.read(f"{full}.weight", tuple(module.weight.shape))
        bias = None
        if f"{full}.bias" in self.file.entries:
            values = self.read(f"{full}.bias", (len(module.weight),)).weight(dtype)[0]
            bias = nn.Parameter(values if heads is None else values[unturned(len(values), heads)])
        if heads is not None:
            storage.take_rows(unturned(storage.size[0], heads))
        if isinstance(module, nn.Embedding):
            self.table = storage
            return LowBitEmbedding(storage, dtype)
        if isinstance(module, nn.Linear):
            return LowBitLinear(storage, bias, dtype, self.rounds(storage))
        module.weight = nn.Parameter(storage.weight(dtype)[0])
        return module

    def rounds(self, storage: Storage) -> str | None:
        return self.activations if storage.integers else None

    def read(self, name: str, shape: tuple[int, ...]) -> Storage:
        storage = self.file.storage(name)
        found = self.file.entries[name].shape
        if found != shape:
            raise self.file.error(f"the tensor {name} is of shape {[*found]}, not {[*shape]}")
        self.unread.discard(name)
        return storage


def unturned(rows: int, heads: int) -> Tensor:
    """i64[rows]: where rows of q and k stand in the file, which pairs what a rotation turns.

    llama.cpp turns neighbours, transformers element i of a head with i + half of its width.
    """
    return torch.arange(rows).view(heads, -1, 2).transpose(1, 2).flatten()


def config_of(file: Gguf, dtype: torch.dtype) -> Any:
    """The LlamaConfig of a file's metadata."""
    data = file.metadata
    architecture = data.get("general.architecture")
    if architecture != "llama":
        raise file.error(f"its architecture is {architecture}; there is a model of llama alone")
    sizes = {key: number(file, f"llama.{name}") for key, name in SIZES.items()}
    scaling = data.get("llama.rope.scaling.type", "none")
    if data.get("llama.expert_count", 0) or scaling not in ("none", "linear"):
        raise file.error("a llama with experts or a scaling of positions that is not linear")
    heads = sizes["num_attention_heads"]
    rope = {"rope_type": "default", "rope_theta": data.get("llama.rope.freq_base", 10000.0)}
    if scaling == "linear":
        rope |= {"rope_type": "linear", "factor": data.get("llama.rope.scaling.factor")}
    key = "llama.attention.key_length"
    width = number(file, key) if key in data else sizes["hidden_size"] // heads
    if width % 2 or data.get("llama.rope.dimension_count", width) != width:
        raise file.error("a llama that turns a part of each head's elements, or an odd number")
    try:
        transformers: Any = import_module("transformers")
    except ImportError:
        raise LowBitError("a GGUF model needs transformers: pip install transformers") from None
    try:
        return transformers.LlamaConfig(
            **sizes,
            vocab_size=file.entries["token_embd.weight"].shape[0],
            num_key_value_heads=int(data.get("llama.attention.head_count_kv", heads)),
            head_dim=int(width),
            rms_norm_eps=float(data["llama.attention.layer_norm_rms_epsilon"]),
            rope_parameters=rope,
            attention_bias="blk.0.attn_q.bias" in file.entries,
            tie_word_embeddings="output.weight" not in file.entries,
            bos_token_id=data.get("tokenizer.ggml.bos_token_id"),
            eos_token_id=data.get("tokenizer.ggml.eos_token_id"),
            dtype=dtype,
        )
    except KeyError as error:
        raise file.error(f"there is no {error.args[0]}") from None
    except Exception as error:  # of the config's own checks
        raise file.error(f"no config: {' '.join(str(error).split())}") from None


def number(file: Gguf, key: str) -> int:
    value = file.metadata.get(key)
    if not isinstance(value, int) or value < 1:
        raise file.error(f"{key} is {value}, not a size")
    return value
