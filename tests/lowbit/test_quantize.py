"""weft.quantize: codes and scales, layers in eager and compiled, tied weights, what is left."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft.lowbit import LowBitError
from weft.lowbit.modules import LowBitEmbedding, LowBitLinear
from weft.lowbit.storage import e4m3_values

CASES: list[tuple[str, dict[str, Any]]] = [
    ("int8", {}),
    ("int8", {"group": 64}),
    ("int8", {"activations": "int8"}),
    ("int8", {"group": 32, "activations": "int8"}),
    ("int4", {}),
    ("int4", {"group": None}),
    ("int4", {"group": 64, "asymmetric": True}),
    ("int4", {"activations": "int8"}),
    ("int4", {"group": 16, "activations": "int8", "asymmetric": True}),
    ("fp8", {}),
    ("fp8", {"group": 32}),
]
ERRORS = {"int8": 0.015, "int4": 0.12, "fp8": 0.05}  # of the layer, relative; random weights
TIMES = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def distance(x: Tensor, y: Tensor) -> float:
    return ((x.double() - y.double()).norm() / y.double().norm()).item()


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def linear(n: int, k: int, *, bias: bool = True, dtype: torch.dtype = torch.float32) -> nn.Linear:
    layer = nn.Linear(k, n, bias=bias, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(drawn(n, k))
    return layer


SHAPES = [
    (24, 128, (2, 3), torch.float32),
    (1, 100, (5,), torch.bfloat16),  # one output; K is no multiple of a group
    (7, 33, (), torch.float16),
]


@pytest.mark.parametrize(("kind", "options"), CASES)
@pytest.mark.parametrize(("n", "k", "shape", "dtype"), SHAPES)
def test_close_to_the_float_layer(
    kind: Any,
    options: dict[str, Any],
    n: int,
    k: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> None:
    layer = linear(n, k, bias=n > 1, dtype=dtype)
    made, x = weft.quantize(layer, kind, **options), drawn(*shape, k, seed=1, dtype=dtype)
    y = made(x)
    assert (y.dtype, y.shape) == (dtype, (*shape, n))
    coarse = 2 if options.get("group", 32) is None else 1
    assert distance(y, layer(x)) < coarse * (ERRORS[kind] if n > 1 else 3 * ERRORS[kind])


@pytest.mark.parametrize("case", range(len(CASES)))
def test_compiled_as_in_eager(case: int) -> None:
    kind, options = CASES[case]
    _, k, shape, dtype = SHAPES[case % 3]
    for n in (9, 1):
        made = weft.quantize(linear(n, k, bias=n > 1, dtype=dtype), kind, **options)  # pyright: ignore
        x = drawn(*shape, k, seed=1, dtype=dtype)
        with torch.no_grad():
            y, compiled = made(x), weft.compile(made, fallback="error")(x)
        assert compiled.dtype == dtype
        assert distance(compiled, y) < TIMES[dtype]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_dynamo_traces_a_layer(kind: Any, options: dict[str, Any]) -> None:
    made = weft.quantize(linear(6, 64), kind, **options)
    x = drawn(3, 64, seed=1)
    torch._dynamo.reset()
    with torch.no_grad():
        y = torch.compile(made, backend="eager", fullgraph=True)(x)
        assert distance(y, made(x)) < 1e-6


def by_loops(weight: Tensor, group: int, code: Callable[[Tensor], Tensor]) -> Tensor:
    """Each group of each row by itself."""
    rows = [torch.cat([code(g) for g in row.split(group)]) for row in weight]
    return torch.stack(rows)


def test_codes_of_int8() -> None:
    def code(g: Tensor) -> Tensor:
        scale = (g.abs().max() / 127).to(torch.float16).float()
        return (g / scale).round().clamp(-127, 127)

    weight = linear(5, 96).weight.detach()
    for group, width in ((None, 96), (32, 32)):
        storage: Any = weft.quantize(linear(5, 96), "int8", group=group).storage
        assert storage.codes.dtype == torch.int8
        assert torch.equal(storage.codes.float(), by_loops(weight, width, code))
        assert storage.scale.dtype == torch.float16
        assert storage.scale.shape == ((5,) if group is None else (5, 3))


def test_codes_of_int4_are_in_the_order_of_q4_0() -> None:
    weight = linear(5, 64).weight.detach()
    storage: Any = weft.quantize(linear(5, 64), "int4").storage
    assert storage.codes.shape == (5, 2, 16)
    for n, g, j in ((0, 0, 0), (3, 1, 7), (4, 1, 15)):
        group = weight[n, 32 * g : 32 * g + 32]
        largest = group[group.abs().argmax()]
        scale = (largest / -8).to(torch.float16).float()
        q = ((group / scale).round() + 8).clamp(0, 15)
        assert storage.codes[n, g, j] == int(q[j]) + 16 * int(q[j + 16])
        assert storage.scale[n, g] == scale


def test_a_zero_point_for_weights_on_one_side() -> None:
    layer = nn.Linear(32, 4, bias=False)
    with torch.no_grad():
        layer.weight.copy_(drawn(4, 32).abs() + 1)
    exact = layer.weight.detach()
    storage: Any = weft.quantize(layer, "int4", asymmetric=True).storage
    assert storage.zero.dtype == torch.uint8
    assert (storage.weight(torch.float32) - exact).abs().max() <= exact.max() / 30 * 1.01


def test_every_byte_of_fp8() -> None:
    codes = torch.arange(256).to(torch.uint8)
    finite = codes[(codes & 127) != 127]
    assert torch.equal(e4m3_values(finite), finite.view(torch.float8_e4m3fn).float())


def test_int8_activations_are_exact_in_integers() -> None:
    x, layer = drawn(20, 4096, seed=2) * 1e-3, linear(8, 4096, bias=False)
    made: Any = weft.quantize(layer, "int8", activations="int8")
    sx = x.abs().amax(-1) / 127
    xq = (x / sx[:, None]).round().to(torch.int64)
    sums = xq @ made.storage.codes.to(torch.int64).T
    assert torch.equal(made(x), sums.float() * sx[:, None] * made.storage.scale.float())


@pytest.mark.parametrize(("kind", "group"), [("int8", None), ("int8", 32), ("int4", 32)])
def test_gradients_pass_through_rounded_activations(kind: Any, group: int | None) -> None:
    made = weft.quantize(linear(6, 64), kind, group=group, activations="int8")
    x = drawn(3, 64, seed=1).requires_grad_()
    y = made(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, made.weight.sum(0).expand(3, 64), atol=1e-5)
    with torch.no_grad():
        assert torch.equal(made(x), y)


@pytest.mark.parametrize("kind", ["int8", "int4", "fp8"])
def test_a_state_dict_is_loaded_again(kind: Any) -> None:
    first, second = (weft.quantize(nn.Sequential(nn.Linear(40, 5)), kind) for _ in range(2))
    x = drawn(3, 40)
    assert not torch.equal(first(x), second(x))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))


@pytest.mark.parametrize("options", [{}, {"group": 32}])
def test_rows_of_zeros(options: dict[str, Any]) -> None:
    layer = linear(4, 64, bias=False)
    with torch.no_grad():
        layer.weight[1] = 0
    made = weft.quantize(layer, "int8", activations="int8", **options)
    y = made(torch.zeros(2, 64))
    assert torch.equal(y, torch.zeros(2, 4))
    assert made(torch.zeros(0, 64)).shape == (0, 4)
    assert torch.equal(weft.quantize(layer, "int4")(drawn(2, 64))[:, 1], torch.zeros(2))


def test_scales_beyond_f16_are_f32_and_keep_their_dtype() -> None:
    layer = linear(4, 64, bias=False)
    with torch.no_grad():
        layer.weight.mul_(1e-7)
    made: Any = weft.quantize(layer, "int8")
    assert made.storage.scale.dtype == torch.float32
    x = drawn(3, 64, seed=1)
    assert distance(made(x), layer(x)) < 0.01
    moved: Any = weft.quantize(linear(4, 64), "int8").to(torch.bfloat16)
    assert moved.storage.scale.dtype == torch.float16
    assert moved.weight.dtype == moved.bias.dtype == torch.bfloat16


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 64)
        self.middle = nn.Linear(64, 64)
        self.head = nn.Linear(64, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, index: Tensor) -> Tensor:
        return self.head(F.relu(self.middle(self.embed(index))))


@pytest.mark.parametrize("kind", ["int8", "int4", "fp8"])
def test_tied_embeddings_are_stored_once(kind: Any) -> None:
    torch.manual_seed(0)
    model = Tied()
    index = torch.randint(0, 50, (2, 5))
    before = model(index)
    made: Any = weft.quantize(model, kind)
    assert made is model
    assert isinstance(made.embed, LowBitEmbedding)
    assert made.embed.storage is made.head.storage
    assert torch.equal(made.embed(index), made.head.weight[index])
    with torch.no_grad():
        assert distance(made(index), before) < 2 * ERRORS[kind]
        compiled = weft.compile(made, fallback="error")(index)
    assert distance(compiled, made(index)) < 1e-6
    with pytest.raises(IndexError):
        made.embed(torch.tensor([-1]))
    sizes = {name: part.nbytes for name, part in made.named_buffers()}
    assert sum(sizes.values()) == sum(made.lowbit_report.stored.values()) - 64 * 4  # the bias
    assert not any(p.dim() > 1 for p in made.parameters()), "no float weight is kept"


def test_skip_keeps_a_head_and_what_shares_its_weight() -> None:
    model: Any = weft.quantize(Tied(), "int4", skip=("head", "absent"))
    assert model.head.weight is model.embed.weight
    assert isinstance(model.middle, LowBitLinear)
    report = str(model.lowbit_report)
    assert "left head: skip names it" in report
    assert "left embed: shares its weight with head, which is left" in report
    assert "left absent: no module has this name, which skip names" in report


def test_the_report_counts_bytes() -> None:
    model = nn.Sequential(nn.Embedding(10, 64), nn.Linear(64, 32), nn.Conv1d(1, 1, 1))
    report = weft.quantize(model, "int4").lowbit_report
    codes, scales, floats = 32 * 32, 32 * 2 * 2, 4 * (10 * 64 + 32 + 2)
    assert report.stored == {"uint8": codes, "float16": scales, "float32": floats}
    assert report.bytes_per_token == codes + scales + 4 * (64 + 32 + 2)  # a row of the table
    assert report.skipped == {"0": "an embedding whose weight no Linear shares"}


def test_layers_with_more_to_them_are_left() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    hooked = nn.Linear(4, 4)
    hooked.register_forward_hook(lambda *_: None)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    made = weft.quantize(nn.ModuleList([Doubled(4, 4), hooked, normed, nn.Linear(4, 4)]), "int8")
    assert made.lowbit_report.layers == ["3"]
    assert {"0", "1"} <= {*made.lowbit_report.skipped}
    twice: Any = nn.Linear(4, 4)
    shared: Any = weft.quantize(nn.ModuleList([twice, nn.Sequential(twice)]), "int8")
    assert shared[0] is shared[1][0]


def test_attention_reads_the_weight() -> None:
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).eval()
    x = drawn(2, 5, 32)
    with torch.no_grad():
        before = layer(x)
        assert distance(weft.quantize(layer, "int8")(x), before) < 0.01


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "int3"}, "unknown kind of weight 'int3': one of int8, int4, fp8"),
        ({"activations": "int4"}, "unknown kind of activations 'int4'"),
        ({"kind": "int4", "group": 7}, "an even number of elements, or None for a row, not 7"),
        ({"group": 0}, "not 0"),
        ({"kind": "fp8", "activations": "int8"}, "goes with int8 and int4 weights, not with fp8"),
        ({"asymmetric": True}, "asymmetric goes with int4 weights, not with int8"),
    ],
)
def test_options_that_do_not_go_together(change: dict[str, Any], words: str) -> None:
    with pytest.raises(weft.WeftError, match=words) as caught:
        weft.quantize(nn.Linear(8, 8), **{"kind": "int8", **change})
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(bad: float) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    with torch.no_grad():
        model[1].weight[3, 3] = bad
    with pytest.raises(LowBitError, match=r"^1\.weight has elements that are not finite"):
        weft.quantize(model, "int8")
    assert isinstance(model[0], nn.Linear), "nothing is replaced"
    with pytest.raises(LowBitError, match="meta device"):
        weft.quantize(nn.Linear(8, 8, device="meta"), "int8")


def test_one_column_is_summed_exactly() -> None:
    linear = nn.Linear(1, 3, bias=False)
    x = torch.tensor([[2.0], [-1.0]])
    module = weft.quantize(copy.deepcopy(linear), "int8", activations="int8")
    with torch.no_grad():
        torch.testing.assert_close(module(x), linear(x), rtol=0.02, atol=0.02)
