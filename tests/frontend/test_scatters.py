"""What writes where tensors point, natively: values, gradients, parts of tensors, bad indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from weft.core.errors import WeftError
from weft.link.program import without_restatements
from weft.text import parse_program

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
torch.manual_seed(0)


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(-9, 9, shape).float()


def rows(n: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, n, shape)


def apart(n: int, k: int, *rest: int) -> torch.Tensor:
    """k different places of n along the first axis."""
    places = torch.stack([torch.randperm(n)[:k] for _ in range(max(1, *rest, 1))], 1)
    return places if rest else places[:, 0]


MASK = torch.rand(5, 6) > 0.5

CASES: dict[str, Case] = {
    "scatter": (lambda x, i, v: x.scatter(0, i, v), (whole(7, 4), apart(7, 5, 4), whole(5, 4))),
    "scatter along rows": (
        lambda x, i, v: x.scatter(-1, i, v),
        (whole(4, 7), apart(7, 5, 4).t().contiguous(), whole(4, 5)),
    ),
    "of a part": (lambda x, i, v: x.scatter(0, i, v), (whole(7, 6), apart(7, 3, 4), whole(5, 9))),
    "of a part of three axes": (
        lambda x, i, v: x.scatter_add(1, i, v),
        (whole(4, 6, 5), rows(6, 2, 8, 3), whole(3, 9, 5)),
    ),
    "one place a row": (
        lambda x, i, v: x.scatter(1, i, v),
        (whole(9, 7), rows(7, 9, 1), whole(9, 1)),
    ),
    "one sum a row": (
        lambda x, i, v: x.scatter_add(1, i, v),
        (whole(9, 7), rows(7, 9, 1), whole(9, 1)),
    ),
    "one place of some rows": (
        lambda x, i, v: x.scatter(1, i, v),
        (whole(9, 7), rows(7, 4, 1), whole(9, 2)),
    ),
    "value": (lambda x, i: x.scatter(0, i, 2.5), (whole(7, 4), rows(7, 5, 4))),
    "one value a row": (lambda x, i: x.scatter(1, i, -1.0), (whole(9, 7), rows(7, 9, 1))),
    "add": (
        lambda x, i, v: x.scatter(0, i, v, reduce="add"),
        (whole(7, 4), rows(7, 9, 4), whole(9, 4)),
    ),
    "multiply": (
        lambda x, i: x.scatter(0, i, 2.0, reduce="multiply"),
        (whole(7, 4), rows(7, 9, 4)),
    ),
    "no index": (lambda x, i, v: x.scatter(0, i, v), (whole(7, 4), rows(7, 0, 4), whole(5, 4))),
    "one row": (lambda x, i, v: x.scatter_add(0, i, v), (whole(1, 4), rows(1, 5, 4), whole(5, 4))),
    "rank 0": (lambda x, i, v: x.scatter(0, i, v), (whole(), rows(1), whole())),
    "index_add": (
        lambda x, i, v: x.index_add(1, i, v, alpha=2),
        (whole(3, 7, 2), rows(7, 9), whole(3, 9, 2)),
    ),
    "index_copy": (
        lambda x, i, v: x.index_copy(1, i, v),
        (whole(3, 7, 2), apart(7, 4), whole(3, 4, 2)),
    ),
    "index_fill": (lambda x, i: x.index_fill(1, i, 3.0), (whole(3, 7, 2), rows(7, 4))),
    "put": (
        lambda x, i, v: x.index_put((i,), v),
        (whole(7, 4), apart(7, 5) - 7, whole(5, 4)),
    ),
    "put apart": (
        lambda x, i, j, v: torch.ops.aten.index_put(x, [i, None, j], v, True),
        (whole(7, 4, 5), rows(7, 6), rows(5, 6), whole(6, 4)),
    ),
    "put where": (
        lambda x: torch.ops.aten.index_put(x, [MASK], torch.tensor(2.0)),
        (whole(5, 6, 3),),
    ),
    "put a row where": (
        lambda x, v: torch.ops.aten.index_put(x, [MASK], v),
        (whole(5, 6, 3), whole(3)),
    ),
    "add where": (
        lambda x, v: torch.ops.aten.index_put(x, [None, MASK], v, True),
        (whole(2, 5, 6), whole(1)),
    ),
    "masked_scatter": (lambda x, v: x.masked_scatter(MASK, v), (whole(5, 6), whole(40))),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, torch.tensor([1, 2, 0, -100, 3]), label_smoothing=0.1),
        (whole(5, 6),),
    ),
}
FOLDS = [
    (reduce, own) for reduce in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)
]
for reduce, own in FOLDS:
    CASES[f"scatter_reduce {reduce} {own}"] = (
        lambda x, i, v, r=reduce, o=own: x.scatter_reduce(0, i, v, r, include_self=o),
        (whole(7, 4) + 0.5, rows(7, 9, 4), whole(9, 4) + 0.25),
    )
    if reduce != "sum":
        CASES[f"index_reduce {reduce} {own}"] = (
            lambda x, i, v, r=reduce, o=own: x.index_reduce(0, i, v, r, include_self=o),
            (whole(7, 4) + 0.5, rows(7, 9), whole(9, 4) + 0.25),
        )


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    """In several dtypes, with nothing left to ATen."""
    function, given = CASES[name]
    for dtype in (torch.float32, torch.float64, torch.int32, torch.bfloat16):
        if "cross" in name and not dtype.is_floating_point:
            continue
        args = [t.to(dtype) if t.is_floating_point() else t for t in given]
        try:
            want = function(*args)
        except (RuntimeError, TypeError):  # eager has not this dtype
            continue
        compiled = weft.compile(function, fallback="error")
        torch.testing.assert_close(
            compiled(*args), want, rtol=1.6e-2 if dtype is torch.bfloat16 else 1e-6, atol=0
        )


@pytest.mark.parametrize("name", [n for n in CASES if "reduce prod" not in n])
def test_gradients(name: str) -> None:
    function, given = CASES[name]

    def gradients(f: Callable[..., Any]) -> list[torch.Tensor]:
        args = [t.clone().requires_grad_() if t.is_floating_point() else t for t in given]
        out = f(*args)
        torch.manual_seed(1)
        out.backward(torch.randint(-3, 4, out.shape).float())
        return [a.grad for a in args if a.requires_grad]  # type: ignore[misc]

    try:
        want = gradients(function)
    except RuntimeError:  # eager has no derivative of it
        return
    compiled = weft.compile(function)
    for found, expected in zip(gradients(compiled), want, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not weft.report(compiled).externs


@pytest.mark.parametrize("bad", [7, -1])
@pytest.mark.parametrize("width", [1, 4])
def test_an_index_out_of_range_is_an_error(bad: int, width: int) -> None:
    index = torch.zeros(3, width, dtype=torch.int64)
    index[1, 0] = bad
    for dim, x in ((0, whole(7, 9)), (1, whole(9, 7))):
        compiled = weft.compile(lambda x, i, v, dim=dim: x.scatter(dim, i, v), fallback="error")
        with pytest.raises((WeftError, IndexError)):
            compiled(x, index, whole(3, width))


def test_the_last_value_of_one_place_stays() -> None:
    index = torch.tensor([1, 0, 1, 1, 0])
    found = weft.compile(lambda x, i, v: x.index_copy(0, i, v))(whole(3), index, torch.arange(5.0))
    assert found[:2].tolist() == [4.0, 3.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_the_last_value_stays_in_every_dtype(dtype: torch.dtype, axis: int) -> None:
    """One scatter, whose values need no second kernel; also at places along both axes."""
    x, v = whole(9, 33).to(dtype), whole(9, 33).to(dtype)
    i, flat = rows((9, 33)[axis], 9, 33), rows(9 * 33, 50)
    compiled = weft.compile(lambda x, v: (x.scatter(axis, i, v), x.put(flat, v[0, :1].expand(50))))
    expected = x.clone().numpy(force=True) if dtype is not torch.bfloat16 else x.float().numpy()
    values = v.float().numpy() if dtype is torch.bfloat16 else v.numpy()
    for a in range(9):
        for b in range(33):  # in order along either axis
            place = (int(i[a, b]), b) if axis == 0 else (a, int(i[a, b]))
            expected[place] = values[a, b]
    scattered, put = compiled(x, v)
    assert torch.equal(scattered, torch.from_numpy(expected).to(dtype))
    assert torch.equal(put, x.put(flat, v[0, :1].expand(50)))


def test_a_result_of_another_shape_is_stored_once() -> None:
    """Its copy is left out, but where that would be read as another's, or goes to an input."""
    x, i, v = whole(30, 30), rows(900, 70), whole(70)
    compiled = weft.compile(lambda x, v: x.put(i, v, accumulate=True))
    torch.testing.assert_close(compiled(x, v), x.put(i, v, accumulate=True))
    assert [k.name for k in weft.report(compiled).kernels][-1] == "scatter"

    def several(x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.put(i, v, accumulate=True)
        return y, y.reshape(-1) * 2, y.reshape(9, 100).clone(), x.put_(i, v)

    ours, theirs = x.clone(), x.clone()
    for a, b in zip(weft.compile(several)(ours, v), several(theirs, v), strict=True):
        torch.testing.assert_close(a, b)
    assert torch.equal(ours, theirs)


COPIED = """program loop copied
input x: f32[2,8]
input i: i64[5]

kernel m(x: f32[2,8]) -> m: f32[16]
for a0 in 0..2:  # free
    for a1 in 0..8:  # free
        in0 = load x[a0, a1]
        v0 = multiply(in0, 2.0)
        m[a0 * 8 + a1] = v0

kernel y(m: f32[16]) -> y: f32[{shape}]
for a0 in 0..2:  # free
    for a1 in 0..8:  # free
        in0 = load m[a0 * 8 + a1]
        y[{to}] = in0
{more}
output y
"""
ADDED = """
kernel added(i: i64[5]) -> y: f32[2,8]
for a0 in 0..5:  # free
    in0 = load i[a0]
    v0 = checked_index(in0, 8)
    y[0, v0] = 1.0 atomic_add
"""


@pytest.mark.parametrize(
    ("shape", "to", "more", "kernels"),
    [
        ("2,8", "a0, a1", "", 1),
        ("8,2", "a1, a0", "", 2),  # in another order
        ("2,8", "a0, a1", ADDED, 3),  # m is to stay as it is
    ],
)
def test_which_copies_are_left_out(shape: str, to: str, more: str, kernels: int) -> None:
    program = parse_program(COPIED.format(shape=shape, to=to, more=more))
    plain = without_restatements(program)
    assert len(plain.steps) == kernels
    assert {b.name for b in plain.steps[0].outputs} == {"y" if kernels == 1 else "m"}
    assert len(without_restatements(program, ["y"]).steps) == len(program.steps)
    assert len(without_restatements(program, kept=["m"]).steps) == len(program.steps)


def test_too_few_values_for_a_mask_are_an_error() -> None:
    compiled = weft.compile(lambda x, v: x.masked_scatter(MASK, v), fallback="error")
    with pytest.raises((WeftError, IndexError)):
        compiled(whole(5, 6), whole(2))


# --- embedding bags -------------------------------------------------------------------------------

BAGS = {
    "even": (rows(20, 5, 4), None),
    "even, i32": (rows(20, 5, 4).int(), None),  # whose offsets are a cast of positions
    "offsets": (rows(20, 17), torch.tensor([0, 3, 3, 9])),
    "last offset": (rows(20, 17), torch.tensor([0, 3, 3, 9, 17])),
    "one bag": (rows(20, 6), torch.tensor([0])),
    "empty at the end": (rows(20, 6), torch.tensor([0, 6, 6])),
}


@pytest.mark.parametrize("name", BAGS)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("how", ["plain", "weights", "padding", "frequency"])
def test_bags(name: str, mode: str, how: str) -> None:
    indices, offsets = BAGS[name]
    if (how == "weights" and mode != "sum") or (how == "frequency" and mode == "max"):
        pytest.skip("torch has weights in sums alone")
    table = whole(20, 6)
    weights = torch.rand(indices.shape) if how == "weights" else None
    options: dict[str, Any] = {
        "padding_idx": int(indices.reshape(-1)[1]) if how == "padding" else None,
        "scale_grad_by_freq": how == "frequency",
        "include_last_offset": name == "last offset",
        "mode": mode,
    }

    def gradients(f: Callable[..., Any]) -> list[torch.Tensor]:
        t = table.clone().requires_grad_()
        w = None if weights is None else weights.clone().requires_grad_()
        out = f(t, w)
        torch.manual_seed(1)
        out.backward(torch.randn(out.shape))
        return [out.detach(), t.grad, *([] if w is None else [w.grad])]  # type: ignore[list-item]

    def bag(table: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
        return F.embedding_bag(indices, table, offsets, per_sample_weights=weights, **options)

    compiled = weft.compile(bag)
    for found, expected in zip(gradients(compiled), gradients(bag), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        alone = weft.compile(bag, fallback="error")
        torch.testing.assert_close(alone(table, weights), bag(table, weights), rtol=1e-5, atol=1e-5)
    if (
        name.startswith("even") and how == "plain" and mode != "max"
    ):  # a bag is a row, which nothing has to find out
        assert "scatter" not in weft.ir(compiled, "tensor").split("program")[1]
    own = [] if how != "frequency" else ["aten._embedding_bag_backward.default"]
    assert [name for name, *_ in weft.report(compiled).externs] == own


# --- fake quantisation ----------------------------------------------------------------------------

ODD = torch.tensor(
    [0.05, 0.15, -0.25, 0.35, 99.0, -99.0, 1e30, -1e30, torch.inf, -torch.inf, torch.nan]
)


@pytest.mark.parametrize("scale", [0.1, 1 / 3, 2.0, 1e-3])
def test_fake_quantisation_is_eagers_to_the_bit(scale: float) -> None:
    x = torch.cat([torch.randn(500) * 20 * scale, (torch.arange(-40, 40) + 0.5) * scale, ODD])

    def one(x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, scale, 3, -8, 7)

    assert torch.equal(weft.compile(one, fallback="error")(x), one(x))
    scales, zeros = torch.rand(3) * scale + scale, torch.tensor([0, 3, -2], dtype=torch.int32)

    def each(x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -8, 7)

    wide = torch.stack([x, x * 2, x / 2], 1)
    assert torch.equal(weft.compile(each, fallback="error")(wide), each(wide))


def test_a_module_of_fake_quantisation_trains_as_eager() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(5, 4)
    x = torch.randn(7, 5)

    def run(f: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        layer.zero_grad()
        out = f(x)
        out.square().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in layer.parameters())]  # type: ignore[union-attr]

    def forward(x: torch.Tensor) -> torch.Tensor:
        scale, zero = torch.tensor([0.05]), torch.tensor([1], dtype=torch.int32)
        w = torch.fake_quantize_per_tensor_affine(layer.weight, scale, zero, -8, 7)
        return F.linear(x, w, layer.bias)

    compiled = weft.compile(forward)
    for found, expected in zip(run(compiled), run(forward), strict=True):
        torch.testing.assert_close(found, expected)
    assert not weft.report(compiled).externs
