"""Lanes that read elements near each other: one load and a permutation, in every dtype and size."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional as F

import weft
from weft.core.node import Node, substitute
from weft.driver import compile_text
from weft.scalar.ops import FUNCTIONS, apply, axis, constant, value_of
from weft.scalar.spread import spread
from weft.text import parse_program, print_program

WIDE = torch.float32, torch.float64, torch.bfloat16, torch.int64
OTHERS = torch.float16, torch.int32, torch.int16, torch.uint8, torch.bool
CASES = [
    *((dtype, length, "cpu") for dtype in WIDE for length in (3, 16, 37)),
    *((dtype, 37, "cpu") for dtype in OTHERS),
    *((dtype, 37, f"cpu:{isa}") for dtype in WIDE[:3] for isa in ("avx512", "avx2", "plain")),
]
A = axis("a")


def near(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Each element often, clamped at either end, backwards, padded, with a rest."""
    i = torch.arange(2 * x.shape[1])
    clamped = x[:, ((i + 1) // 2 - 3).clamp(0, x.shape[1] - 1)]
    back = x[:, ((x.shape[1] - 1) - i // 2).clamp(0, x.shape[1] - 1)]
    return x.repeat_interleave(3, 1), clamped, back, F.pad(clamped, (3, 2)), clamped.repeat(1, 2)


@pytest.mark.parametrize(("dtype", "length", "target"), CASES, ids=str)
def test_elements_are_repeated(dtype: torch.dtype, length: int, target: str) -> None:
    x = (torch.randn(5, length) * 50).to(dtype)
    found = weft.compile(near, fallback="error", target=target)(x)
    assert all(map(torch.equal, found, near(x)))


def test_of_any_size() -> None:
    compiled = weft.compile(near, dynamic=True)
    for length in (5, 40, 3):
        x = torch.randn(4, length)
        assert all(map(torch.equal, compiled(x), near(x)))


@pytest.mark.parametrize("size", [30, 31, 64, 200])
def test_a_row_is_interpolated(size: int) -> None:
    x = torch.randn(3, 2, 31)

    def run(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=size, mode="linear")

    torch.testing.assert_close(weft.compile(run, fallback="error")(x), run(x))


def test_one_load_has_the_lanes() -> None:
    program = weft.compile(lambda x: x.repeat_interleave(2, 1), target="cpu:avx512")
    program.prepare(torch.randn(8, 500))
    text = program.ir("kernel")
    assert "permute(" in text and "gather" not in text
    assert print_program(parse_program(text)) == text


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "bf16"])
@pytest.mark.parametrize("lanes", [2, 8, 32])
def test_numbers_of_lanes_are_modulo_their_count(dtype: str, lanes: int) -> None:
    compiled = compile_text(f"""
program kernel main
input x: {dtype}[{lanes}]
input at: i32[{lanes}]

kernel k(x: {dtype}[{lanes}], at: i32[{lanes}]) -> y: {dtype}[{lanes}]
in0 = load{{{lanes}}} x[0]
in1 = load{{{lanes}}} at[0]
v0 = permute(in0, in1)
y{{{lanes}}}[0] = v0

output y
""")
    kind = {"f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64}
    x = torch.arange(lanes).to(kind.get(dtype, torch.bfloat16))
    at = torch.randint(-100, 100, (lanes,), dtype=torch.int32)
    assert torch.equal(compiled(x, at), x[at.long() % lanes])
    assert compiled.interpret(x, at)[0].astype(float).tolist() == x[at.long() % lanes].tolist()


def term(rng: random.Random, depth: int) -> Node:
    """An index term of one axis."""
    if depth == 0:
        return rng.choice([A, constant(rng.randint(-9, 40))])
    name = rng.choice(["add", "subtract", "minimum", "maximum", "multiply", "floordiv"])
    left = term(rng, depth - 1)
    if name in ("multiply", "floordiv"):
        return apply(
            name, left, constant(rng.randint(1, 4) * (name[0] == "f" or rng.choice([1, -1])))
        )
    return apply(name, left, term(rng, depth - 1))


def test_spreads_hold() -> None:
    rng, tight = random.Random(0), 0
    for _ in range(300):
        node = term(rng, rng.randint(1, 4))
        found = spread(node, A, 8, {A: (0, 47)})
        assert found is not None

        def value(at: int, node: Node = node) -> int:
            memo: dict[Node, int] = {A: at}

            def of(n: Node) -> int:
                if n not in memo:
                    literal = value_of(n)
                    name = n.op.function.name if literal is None else ""  # type: ignore[attr-defined]
                    memo[n] = (
                        int(literal)
                        if literal is not None
                        else int(FUNCTIONS[name].evaluate(*map(of, n.args)))
                    )
                return memo[n]

            return of(node)

        gaps = [value(at + i) - value(at) for at in range(40) for i in range(8)]
        assert found[0] <= min(gaps) and max(gaps) <= found[1], node
        tight += found == (min(gaps), max(gaps))
    assert tight > 150


def test_no_spread_is_told_of_what_may_wrap_or_jump() -> None:
    b = axis("b")
    told = {A: (0.0, 47.0), b: (0.0, 9.0)}
    assert spread(apply("floormod", A, constant(7)), A, 8, told) is None
    assert spread(apply("multiply", A, b), A, 8, told) is None
    assert spread(apply("minimum", apply("add", A, axis("far")), constant(9)), A, 8, told) is None
    assert spread(apply("add", A, b), A, 8, told) == (0, 7)
    assert spread(substitute((apply("add", A, b),), {A: b})[0], A, 8, told) == (0, 0)
