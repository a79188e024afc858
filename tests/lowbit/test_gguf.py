"""weft.load_gguf: a llama of a file gives its model's logits; a bad file is one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

import weft
from tests.lowbit.files import llama, write
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load
from weft.lowbit import LowBitError

TOKENS = torch.tensor([[3, 77, 5, 120, 9]])


def distance(x: torch.Tensor, y: torch.Tensor) -> float:
    return ((x.double() - y.double()).norm() / y.double().norm()).item()


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_those_of_the_model(tmp_path: Path, kind: Kind, tied: bool) -> None:
    model = llama(tie_word_embeddings=tied, attention_bias=kind == Kind.F32)
    loaded: Any = weft.load_gguf(write(tmp_path / "m.gguf", model, kind))
    with torch.no_grad():
        assert distance(loaded(TOKENS).logits, model(TOKENS).logits) < 1e-5
    table = loaded.model.embed_tokens.storage
    assert (loaded.lm_head.storage is table) == tied
    assert not any(p.is_meta for p in (*loaded.parameters(), *loaded.buffers()))
    if kind == Kind.Q8_0:
        assert {p.dim() for p in loaded.parameters()} == {1}, "no weight is stored as floats"


def test_biases_of_queries_and_keys_are_turned_as_their_rows(tmp_path: Path) -> None:
    model = llama(attention_bias=True)
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            torch.nn.init.normal_(getattr(layer.self_attn, name).bias)
    loaded: Any = weft.load_gguf(write(tmp_path / "m.gguf", model, Kind.F32))
    with torch.no_grad():
        assert distance(loaded(TOKENS).logits, model(TOKENS).logits) < 1e-5


def test_int8_activations_and_bf16(tmp_path: Path) -> None:
    model = llama()
    path = write(tmp_path / "m.gguf", model, Kind.Q8_0)
    with torch.no_grad():
        expected = model(TOKENS).logits
        rounded: Any = weft.load_gguf(path, activations="int8")
        assert 1e-4 < distance(rounded(TOKENS).logits, expected) < 0.05
        half: Any = weft.load_gguf(path, dtype=torch.bfloat16)
        assert half(TOKENS).logits.dtype == torch.bfloat16
        assert distance(half(TOKENS).logits, expected) < 0.05


def test_a_model_is_compiled_and_generates(tmp_path: Path) -> None:
    model = llama(num_hidden_layers=1)
    loaded: Any = weft.load_gguf(write(tmp_path / "m.gguf", model, Kind.Q4_0))
    with torch.no_grad():
        found = weft.compile(loaded, fallback="error")(TOKENS, use_cache=False).logits
        assert distance(found, model(TOKENS).logits) < 1e-5
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    mask = torch.ones_like(TOKENS)
    expected = model.generate(TOKENS, attention_mask=mask, **options)
    assert torch.equal(loaded.generate(TOKENS, attention_mask=mask, **options), expected)


def test_rope_of_the_metadata(tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}
    model = llama(rope_parameters=rope)
    data = {"llama.rope.freq_base": 5000.0, "llama.rope.scaling.type": "linear"}
    data |= {"llama.rope.scaling.factor": 4.0}
    loaded: Any = weft.load_gguf(write(tmp_path / "m.gguf", model, Kind.F32, data))
    with torch.no_grad():
        assert distance(loaded(TOKENS).logits, model(TOKENS).logits) < 1e-5


CHANGES: dict[str, tuple[Callable[[bytearray], None], str]] = {
    "magic": (lambda data: data.__setitem__(slice(4), b"GGML"), "not a GGUF file"),
    "version": (lambda data: data.__setitem__(4, 1), "version 1 of GGUF"),
    "big endian": (lambda data: data.__setitem__(slice(4, 8), b"\0\0\0\3"), "little-endian"),
    "tensors": (lambda data: data.__delitem__(slice(-100, None)), "cut off: the tensor blk.1"),
    "header": (lambda data: data.__delitem__(slice(300, None)), "cut off: .* at byte"),
    "empty": (lambda data: data.clear(), "empty"),
    "count": (lambda data: data.__setitem__(slice(8, 16), b"\xff" * 8), "m.gguf: "),
}


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_files(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "m.gguf", llama(), Kind.Q8_0)
    data = bytearray(path.read_bytes())
    edit, words = CHANGES[change]
    edit(data)
    path.write_bytes(data)
    check(path, words)


def check(path: Path, words: str) -> None:
    with pytest.raises(LowBitError, match=words) as caught:
        weft.load_gguf(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


def test_every_cut_of_a_header_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", llama(num_hidden_layers=1), Kind.Q8_0)
    data = path.read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in range(1, 1500, 13):
        cut.write_bytes(data[:size])
        check(cut, "cut off|not a GGUF")


def test_scales_and_floats_that_are_not_finite(tmp_path: Path) -> None:
    model = llama()
    path = write(tmp_path / "m.gguf", model, Kind.Q8_0)
    data = path.read_bytes()
    scale = np.abs(model.model.layers[1].mlp.down_proj.weight.detach().numpy()[0, :32]).max() / 127
    raw = np.float16(scale).tobytes()
    at = data.rindex(raw, 0, len(data))
    path.write_bytes(data[:at] + np.float16(np.inf).tobytes() + data[at + 2 :])
    check(path, r"blk\.1\.ffn_down\.weight of Q8_0 has an element of its scale that is not finite")
    with torch.no_grad():
        model.model.norm.weight[3] = torch.nan
    path = write(tmp_path / "n.gguf", model, Kind.Q8_0)
    check(path, "output_norm.weight of F32 has an element of its values that is not finite")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((b"blk.1.ffn_down.weight", b"blk.1.ffn_donw.weight"), "no tensor blk.1.ffn_down.weight"),
        ((b"blk.1.ffn_down.weight", b"blk.1.ffn_gate.weight"), "comes twice"),
        ((b"llama.block_count\4\0\0\0\2", b"llama.block_count\4\0\0\0\1"), "no place in a llama"),
        ((b"llama.block_count\4", b"llama.block_cnuot\4"), "llama.block_count is None"),
        ((b"layer_norm_rms_epsilon", b"layer_norm_rms_epsiXXX"), "layer_norm_rms_epsilon"),
        ((b"blk.1.ffn_down.weight\2\0\0\0\x60\0", b"blk.1.ffn_down.weight\2\0\0\0\x40\0"), "shape"),
        (
            (b"blk.1.ffn_down.weight\2\0\0\0\x60\0", b"blk.1.ffn_down.weight\2\0\0\0\x50\0"),
            r"of Q8_0 is of shape \[64, 80\]",
        ),
        (
            (b"blk.1.ffn_norm.weight\1\0\0\0\x40", b"blk.1.ffn_norm.weight\1\0\0\0\0"),
            r"shape \[0\]",
        ),
        ((b"attention.head_count\4\0\0\0\4", b"attention.head_count\4\0\0\0\x40"), "odd number"),
        ((b"attention.head_count\4\0\0\0\4", b"attention.head_count\4\0\0\0\3"), "odd number"),
        ((b"blk.1.ffn_down.weight\2", b"blk.1.ffn_down.weight\7"), "has 7 dimensions"),
    ],
)
def test_names_and_sizes_that_do_not_fit(
    tmp_path: Path, change: tuple[bytes, bytes], words: str
) -> None:
    path = write(tmp_path / "m.gguf", llama(), Kind.Q8_0)
    before, after = change
    data = path.read_bytes()
    assert data.count(before) == 1
    path.write_bytes(data.replace(before, after))
    check(path, words)


def test_an_unknown_type_of_blocks(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", llama(), Kind.Q8_0)
    data = bytearray(path.read_bytes())
    name = b"blk.1.ffn_down.weight"
    at = data.index(name) + len(name) + 4 + 16
    assert data[at] == Kind.Q8_0
    data[at] = Kind.Q3_K
    path.write_bytes(data)
    check(path, "the tensor blk.1.ffn_down.weight has blocks of the unknown type 11, not F32, ")


def test_the_command_line_runs_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", llama(num_hidden_layers=1), Kind.Q8_0)
    source = load(SourceSpec(path=str(path)))
    assert isinstance(source, Source)
    assert source.title == "m"
    with torch.no_grad():
        assert source.callable(*source.args, **source.kwargs).logits.shape == (1, 32, 128)


def test_other_architectures(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", llama(), Kind.Q8_0, name="falcon")
    check(path, "its architecture is falcon")
    path = write(tmp_path / "n.gguf", llama(), Kind.Q8_0, {"llama.expert_count": 8})
    check(path, "a llama with experts")
    check(tmp_path / "absent.gguf", "No such file")
