"""Whole transformers models, small and with random weights, equal eager through both entries.

Every model is structurally complete: two layers, grouped heads, masks, residuals, embeddings.
Accuracy is the contract's: error against float64 eager at most twice eager's own, floor 1e-6.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import weft
from weft.dynamo import weft_backend

transformers = pytest.importorskip("transformers")

LAYERS = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = {**LAYERS, "intermediate_size": 112, "num_key_value_heads": 2}
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1}
AUDIO = {
    "d_model": 64,
    "vocab_size": 96,
    "num_mel_bins": 8,
    "max_source_positions": 16,
    "max_target_positions": 16,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
SIDE = {"layers": 2, "attention_heads": 4, "ffn_dim": 112}
WHISPER = AUDIO | {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in SIDE.items()}


def ids(length: int) -> torch.Tensor:
    return torch.randint(3, 96, (2, length))


def image() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32)


def padded(length: int, kept: int) -> torch.Tensor:
    """A mask whose second row is shorter."""
    return torch.stack([torch.ones(length), (torch.arange(length) < kept).float()]).long()


Made = tuple[str, dict[str, Any], dict[str, Any]]  # model class, config, arguments


def llama() -> Made:
    return "LlamaForCausalLM", DECODER, {"input_ids": ids(9), "use_cache": False}


def qwen2() -> Made:
    more = {"input_ids": ids(9), "attention_mask": padded(9, 6), "use_cache": False}
    return "Qwen2ForCausalLM", DECODER, more


def gpt2() -> Made:
    config = {"vocab_size": 96, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 16}
    config |= {"bos_token_id": 1, "eos_token_id": 2}
    return "GPT2LMHeadModel", config, {"input_ids": ids(9), "use_cache": False}


def bert() -> Made:
    more = {"input_ids": ids(9), "attention_mask": padded(9, 6)}
    return "BertModel", {**LAYERS, "intermediate_size": 112}, more


def vit() -> Made:
    size = {"image_size": 32, "patch_size": 8, "intermediate_size": 112}
    layers = {k: v for k, v in LAYERS.items() if k != "vocab_size"}
    return "ViTModel", {**layers, **size}, {"pixel_values": image()}


def resnet() -> Made:
    config = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 2]}
    return "ResNetModel", {**config, "layer_type": "basic"}, {"pixel_values": image()}


def resnet_bottleneck() -> Made:
    config = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1]}
    return "ResNetModel", {**config, "layer_type": "bottleneck"}, {"pixel_values": image()}


def whisper() -> Made:
    more = {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": ids(7)}
    return "WhisperModel", {**WHISPER, **ENDS}, {**more, "use_cache": False}


def t5() -> Made:
    config = {"d_model": 64, "d_kv": 16, "d_ff": 112, "num_layers": 2, "num_heads": 4}
    more = {"input_ids": ids(9), "decoder_input_ids": ids(7), "use_cache": False}
    return "T5Model", {**config, "vocab_size": 96, **ENDS}, more


MODELS = [llama, qwen2, gpt2, bert, vit, resnet, resnet_bottleneck, whisper, t5]


def build(make: Callable[[], Made]) -> tuple[torch.nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    name, config, more = make()
    kind = getattr(transformers, name)
    return kind(kind.config_class(**config)), more


def through(entry: str, model: torch.nn.Module) -> Any:
    if entry == "direct":
        return weft.compile(model)
    torch._dynamo.reset()
    installed = "weft" in torch._dynamo.list_backends(exclude_tags=())
    return torch.compile(model, backend="weft" if installed else weft_backend)


def doubled(tree: Any) -> Any:
    """The same module or arguments in float64."""
    if isinstance(tree, torch.nn.Module):
        return copy.deepcopy(tree).double()
    return torch.utils._pytree.tree_map(lambda t: t.double() if is_real(t) else t, tree)


def is_real(leaf: Any) -> bool:
    return torch.is_tensor(leaf) and leaf.is_floating_point()


def tensors(output: Any) -> dict[str, torch.Tensor]:
    return {k: v for k, v in output.items() if torch.is_tensor(v)}


def error(got: torch.Tensor, reference: torch.Tensor) -> float:
    reference = reference.double()
    return float((got.double() - reference).norm() / reference.norm().clamp_min(1e-30))


def check(got: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, name: str) -> None:
    assert (got.shape, got.dtype, got.stride()) == (eager.shape, eager.dtype, eager.stride()), name
    ours, own = error(got, reference), error(eager, reference)
    assert ours <= max(1e-6, 2 * own), f"{name}: {ours:.2e}, eager has {own:.2e}"


ENTRIES = pytest.mark.parametrize("entry", ["direct", "dynamo"])


@pytest.mark.parametrize("make", MODELS, ids=lambda m: m.__name__)
@ENTRIES
def test_model_as_eager(make, entry, capsys):
    model, more = build(make)
    f = through(entry, model.eval())
    with torch.no_grad():
        got, eager = tensors(f(**more)), tensors(model(**more))
        reference = tensors(doubled(model)(**doubled(more)))
    assert got.keys() == eager.keys()
    for name in eager:
        check(got[name], eager[name], reference[name], name)
    if entry == "direct":
        assert not f.report.externs
        with capsys.disabled():
            seconds = sum(f.report.seconds.values())
            print(f" {len(f.report.kernels)} kernels in {seconds:.1f} s", end=" ")


def block_of_llama() -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    config = transformers.LlamaConfig(**DECODER, attn_implementation="sdpa")
    angles = torch.outer(torch.arange(9), 10.0 ** -torch.linspace(0, 4, 8)).repeat(1, 2)[None]
    more = {"position_embeddings": (angles.cos(), angles.sin())}
    return LlamaDecoderLayer(config, 0), (torch.randn(2, 9, 64),), more


def block_of_resnet() -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    from transformers.models.resnet.modeling_resnet import ResNetBasicLayer

    return ResNetBasicLayer(8, 16, stride=2), (torch.randn(2, 8, 12, 12),), {}


def gradients(f: Any, module: torch.nn.Module, args: Any, more: Any) -> Iterator[torch.Tensor]:
    """Output, gradients of inputs and parameters, and buffers after a step."""
    args = [a.clone().requires_grad_() for a in args]
    out = f(*args, **more)
    out = out if torch.is_tensor(out) else out[0]
    (out * out.cos()).sum().backward()
    yield out.detach()
    for x in (*args, *module.parameters()):
        assert x.grad is not None
        yield x.grad
    yield from (b for b in module.buffers() if b.is_floating_point())


@pytest.mark.parametrize("make", [block_of_llama, block_of_resnet], ids=["llama", "resnet"])
@ENTRIES
def test_block_trains_as_eager(make, entry):
    torch.manual_seed(0)
    module, args, more = make()
    ours, double = copy.deepcopy(module), copy.deepcopy(module).double()
    wide = doubled((args, more))
    got = gradients(through(entry, ours), ours, args, more)
    eager = gradients(module, module, args, more)
    reference = gradients(double, double, *wide)
    for k, (g, e, r) in enumerate(zip(got, eager, reference, strict=True)):
        check(g, e, r, f"value {k}")
