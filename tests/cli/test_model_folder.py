"""Folders with a config.json: random weights, saved weights, no weights at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from weft.cli.check import run_eager
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load
from weft.core.errors import SourceError

transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 4, "max_position_embeddings": 16,
}  # fmt: skip
T5 = {"vocab_size": 64, "d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 1, "num_heads": 4}
WHISPER = {
    "vocab_size": 64, "d_model": 32, "num_mel_bins": 8, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "max_source_positions": 20, "max_target_positions": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip


def folder(path: Path, kind: str, **settings: object) -> SourceSpec:
    config = getattr(transformers, f"{kind}Config")(**settings)
    config.save_pretrained(path)
    return SourceSpec(path=str(path))


def loaded(spec: SourceSpec) -> Source:
    source = load(spec)
    assert isinstance(source, Source)
    return source


@pytest.mark.parametrize(
    ("kind", "settings", "inputs"),
    [
        ("Llama", SMALL, {"input_ids": (1, 16)}),
        ("Bert", SMALL, {"input_ids": (1, 16)}),
        ("ViT", {**SMALL, "image_size": 32, "patch_size": 8}, {"pixel_values": (1, 3, 32, 32)}),
        ("T5", T5, {"input_ids": (1, 32), "decoder_input_ids": (1, 32)}),
        ("Whisper", WHISPER, {"input_features": (1, 8, 40), "decoder_input_ids": (1, 16)}),
    ],
)
def test_config_alone(
    tmp_path: Path, kind: str, settings: dict[str, int], inputs: dict[str, tuple[int, ...]]
) -> None:
    source = loaded(folder(tmp_path, kind, **settings))
    shapes = {n: tuple(v.shape) for n, v in source.kwargs.items() if isinstance(v, torch.Tensor)}
    assert shapes == inputs
    (first, *_) = torch.utils._pytree.tree_leaves(run_eager(source))
    assert first.isfinite().all()


def test_the_architecture_is_the_one_named(tmp_path: Path) -> None:
    spec = folder(tmp_path, "Bert", **SMALL, architectures=["BertForSequenceClassification"])
    assert type(loaded(spec).callable).__name__ == "BertForSequenceClassification"


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    spec = folder(tmp_path, "Llama", **SMALL)
    first, second = (run_eager(loaded(spec)).logits for _ in range(2))
    assert torch.equal(first, second)


def test_saved_weights_are_loaded(tmp_path: Path) -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))
    model.save_pretrained(tmp_path)
    source = loaded(SourceSpec(path=str(tmp_path)))
    assert torch.equal(source.callable.lm_head.weight, model.lm_head.weight)


def test_compile_needs_no_values(tmp_path: Path) -> None:
    spec = SourceSpec(path=folder(tmp_path, "Llama", **SMALL).path, meta=True)
    source = loaded(spec)
    assert {p.device.type for p in source.callable.parameters()} == {"meta"}
    assert source.kwargs["input_ids"].device.type == "meta"


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"has no config\.json"):
        load(SourceSpec(path=str(tmp_path)))


def test_a_broken_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(SourceError):
        load(SourceSpec(path=str(tmp_path)))
