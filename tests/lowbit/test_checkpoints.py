"""load_packed: GPTQ, AWQ, NF4 and MXFP4 decode as loops over their documents' words do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import weft
from weft.lowbit import LowBitError, load_packed

State = dict[str, Tensor]


def words(random: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(random.integers(-(2**31), 2**31, shape).astype(np.int32))


def scales(random: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(random.normal(0, 0.1, shape).astype(np.float16))


def gptq(
    n: int = 16, k: int = 64, group: int = 32, width: int = 4, shuffled: bool = False
) -> tuple[State, np.ndarray]:
    """AutoGPTQ, version 1: value = scale * (code - ((zero + 1) & 15)), by loops."""
    random, per, groups = np.random.default_rng(1), 32 // width, -(-k // group)
    g_idx = np.arange(k) // group
    if shuffled:
        random.shuffle(g_idx)
    state = {"qweight": words(random, k // per, n), "scales": scales(random, groups, n)}
    state["qzeros"] = words(random, groups, n // per)
    if width == 8:
        state["qzeros"][:] = 0x7F7F7F7F
    state["g_idx"] = torch.from_numpy(g_idx.astype(np.int32))
    mask, dense = (1 << width) - 1, np.zeros((n, k), np.float32)
    for row in range(n):
        for column in range(k):
            q = int(state["qweight"][column // per, row]) >> width * (column % per) & mask
            z = int(state["qzeros"][g_idx[column], row // per]) >> width * (row % per) & mask
            scale = np.float32(state["scales"][g_idx[column], row])
            dense[row, column] = scale * np.float32(q - (z + 1 & mask))
    return state, dense


def awq(n: int = 16, k: int = 64, group: int = 32) -> tuple[State, np.ndarray]:
    """AutoAWQ, gemm: half i of word c is of output 8 c + (0, 2, 4, 6, 1, 3, 5, 7)[i]."""
    random, order = np.random.default_rng(2), (0, 2, 4, 6, 1, 3, 5, 7)
    state = {"qweight": words(random, k, n // 8), "qzeros": words(random, k // group, n // 8)}
    state["scales"] = scales(random, k // group, n)
    dense = np.zeros((n, k), np.float32)
    for column in range(k):
        for word in range(n // 8):
            for i, place in enumerate(order):
                q = int(state["qweight"][column, word]) >> 4 * i & 15
                z = int(state["qzeros"][column // group, word]) >> 4 * i & 15
                row = 8 * word + place
                dense[row, column] = np.float32(state["scales"][column // group, row]) * (q - z)
    return state, dense


def nf4(n: int = 4, k: int = 128, nested: bool = False) -> tuple[State, np.ndarray]:
    """bitsandbytes: element 2 i in the high half of byte i; a scale for each 64 elements."""
    random = np.random.default_rng(3)
    table = np.sort(random.normal(0, 0.5, 16)).astype(np.float32)
    packed = random.integers(0, 256, n * k // 2).astype(np.uint8)
    largest = np.abs(random.normal(0, 1, n * k // 64)).astype(np.float32)
    told: dict[str, Any] = {"quant_type": "nf4", "blocksize": 64, "shape": [n, k]}
    state = {
        "weight": torch.from_numpy(packed)[:, None],
        "weight.absmax": torch.from_numpy(largest),
    }
    if nested:
        codes = random.integers(0, 256, len(largest)).astype(np.uint8)
        levels = np.sort(random.normal(0, 1, 256)).astype(np.float32)
        blocks = np.array([0.5, 0.25], np.float32)[: -(-len(codes) // 4)]
        told |= {"nested_blocksize": 4, "nested_offset": 0.125}
        largest = levels[codes] * blocks[np.arange(len(codes)) // 4] + np.float32(0.125)
        state |= {"weight.absmax": torch.from_numpy(codes)}
        state |= {"weight.nested_quant_map": torch.from_numpy(levels)}
        state |= {"weight.nested_absmax": torch.from_numpy(blocks)}
    state["weight.quant_map"] = torch.from_numpy(table)
    text = np.frombuffer(json.dumps(told).encode(), np.uint8).copy()
    state["weight.quant_state.bitsandbytes__nf4"] = torch.from_numpy(text)
    halves = [(byte >> 4, byte & 15) for byte in packed]
    flat = [table[q] * largest[i // 64] for i, q in enumerate(np.ravel(halves))]
    return state, np.array(flat, np.float32).reshape(n, k)


def mxfp4(n: int = 4, k: int = 64) -> tuple[State, np.ndarray]:
    """OCP: sign, two bits of exponent, one of mantissa; the first element in the low half."""
    random = np.random.default_rng(4)
    blocks = random.integers(0, 256, (n, k // 32, 16)).astype(np.uint8)
    exponents = random.integers(100, 140, (n, k // 32)).astype(np.uint8)
    dense = np.zeros((n, k), np.float32)
    for row, column in np.ndindex(n, k):
        code = blocks[row, column // 32, column % 32 // 2] >> 4 * (column % 2) & 15
        exponent, mantissa = code >> 1 & 3, code & 1
        size = (1 + mantissa / 2) * 2.0 ** (int(exponent) - 1) if exponent else mantissa / 2
        size *= 2.0 ** (int(exponents[row, column // 32]) - 127)
        dense[row, column] = -size if code & 8 else size
    state = {"weight_blocks": blocks, "weight_scales": exponents}
    return {key: torch.from_numpy(part) for key, part in state.items()}, dense


CASES: dict[str, tuple[str, Callable[[], tuple[State, np.ndarray]]]] = {
    "gptq": ("gptq", gptq),
    "gptq, act-order": ("gptq", lambda: gptq(shuffled=True)),
    "gptq, a shorter last group": ("gptq", lambda: gptq(k=80)),
    "gptq of 8 bits": ("gptq", lambda: gptq(width=8)),
    "awq": ("awq", awq),
    "nf4": ("nf4", nf4),
    "nf4, nested": ("nf4", lambda: nf4(nested=True)),
    "mxfp4": ("mxfp4", mxfp4),
}


@pytest.mark.parametrize("case", CASES)
def test_as_loops_decode_it(case: str) -> None:
    form, make = CASES[case]
    state, dense = make()
    n, k = dense.shape
    bias = torch.randn(n)
    made: Any = load_packed(nn.Linear(k, n), {**state, "bias": bias}, form)  # pyright: ignore
    assert np.array_equal(made.storage.weight(torch.float32).numpy(), dense)
    x = torch.randn(2, 3, k)
    with torch.no_grad():
        y = made(x).double()
        exact = nn.functional.linear(x.double(), torch.from_numpy(dense).double(), bias.double())
        compiled = weft.compile(made, fallback="error")(x).double()
    assert (y - exact).norm() < 1e-6 * exact.norm()
    assert (compiled - y).norm() < 1e-6 * y.norm()
    stored = sum(part.nbytes for part in made.storage.state_dict().values())
    assert stored < 2 * dense.size, "no weight is stored as floats"


def test_act_order_with_int8_activations() -> None:
    state, dense = gptq(shuffled=True)
    made: Any = load_packed(nn.Linear(64, 16, bias=False), state, "gptq", activations="int8")
    x = torch.randn(5, 64)
    exact = x @ torch.from_numpy(dense).T
    assert (made(x) - exact).norm() < 0.02 * exact.norm()


def test_a_module_with_more_than_packed_weights() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 64)
            self.norm = nn.LayerNorm(64)
            self.middle = nn.Linear(64, 16)
            self.head = nn.Linear(64, 10, bias=False)
            self.head.weight = self.embed.weight

    packed, dense = awq()
    values = nn.LayerNorm(64).state_dict()
    state = {f"middle.{key}": part for key, part in {**packed, "bias": torch.ones(16)}.items()}
    state |= {f"norm.{key}": part for key, part in values.items()}
    state["embed.weight"] = torch.randn(10, 64)
    with torch.device("meta"):
        net = Net()
    made: Any = load_packed(net, state, "awq")
    assert made is net
    assert not any(x.is_meta for x in (*made.parameters(), *made.buffers()) if x.numel())
    assert made.head.weight is made.embed.weight
    assert torch.equal(made.middle.weight, torch.from_numpy(dense))
    for key, words in {
        "norm.bias": "has no norm.bias",
        "middle.scales": "middle .awq. has no",
    }.items():
        with pytest.raises(LowBitError, match=words):
            load_packed(Net(), {k: v for k, v in state.items() if k != key}, "awq")
    with pytest.raises(LowBitError, match=r"no place for other\.weight"):
        load_packed(Net(), {**state, "other.weight": torch.ones(1)}, "awq")
    net = Net()
    with pytest.raises(LowBitError, match=r"norm\.bias of the state dict is of shape"):
        load_packed(net, {**state, "norm.bias": torch.ones(3)}, "awq")
    assert isinstance(net.middle, nn.Linear), "nothing is loaded by half"


def change(state: State, name: str, value: Any) -> State:
    return {**state, name: value(state[name]) if callable(value) else value}


@pytest.mark.parametrize(
    ("form", "name", "value", "words"),
    [
        ("gptq", "qweight", lambda w: w[:6], "codes of 3 bits, not of 4 or 8"),
        ("gptq", "scales", lambda s: s.fill_(torch.inf), "element of its scale that is not finite"),
        ("gptq", "scales", lambda s: s[:, :8], "scales of shape .8, 2., not .16, 2."),
        ("gptq", "g_idx", lambda g: (torch.arange(64) > 15).int(), "not of one size"),
        ("gptq", "g_idx", lambda g: g * 0, "zeros of shape .16, 2., not .16, 1."),
        ("awq", "qweight", lambda w: w[:, :1], "codes of shape .8, 64., not .16, 64."),
        ("awq", "scales", lambda s: torch.cat((s, s[:1])), "3 groups for 64 columns"),
        ("nf4", "weight", lambda w: w[1:], "has weight of shape"),
        ("nf4", "weight.absmax", lambda a: a[1:], "has absmax of shape"),
        ("mxfp4", "weight_scales", lambda s: s.fill_(255), "scale that is not finite"),
        ("mxfp4", "weight_scales", lambda s: s[:, :1], "has scales of shape"),
    ],
)
def test_tensors_that_do_not_fit(form: Any, name: str, value: Any, words: str) -> None:
    state, dense = {"gptq": gptq, "awq": awq, "nf4": nf4, "mxfp4": mxfp4}[form]()
    layer = nn.Linear(dense.shape[1], dense.shape[0], bias=False)
    with pytest.raises(LowBitError, match=words) as caught:
        load_packed(layer, change(state, name, value), form)
    assert "\n" not in caught.value.message


def test_what_no_layer_is_made_of() -> None:
    with pytest.raises(LowBitError, match="no weights of awq"):
        load_packed(nn.Linear(4, 4), {}, "awq")
    with pytest.raises(weft.WeftError, match="unknown packed format 'q9'"):
        load_packed(nn.Linear(4, 4), {}, "q9")  # pyright: ignore[reportArgumentType]
    state = gptq(width=8)[0]
    state["qzeros"][:] = 0
    with pytest.raises(LowBitError, match="zeros other than 128"):
        load_packed(nn.Linear(64, 16, bias=False), state, "gptq")
    with pytest.raises(LowBitError, match="no whole blocks of 64"):
        load_packed(nn.Linear(32, 4, bias=False), nf4()[0], "nf4")
    assert set(gptq()[0]) == {"qweight", "qzeros", "scales", "g_idx"}
    no_index = {key: part for key, part in gptq()[0].items() if key != "g_idx"}
    made: Any = load_packed(nn.Linear(64, 16, bias=False), no_index, "gptq")
    assert np.array_equal(made.weight.numpy(), gptq()[1])
