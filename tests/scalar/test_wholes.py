"""Bounds of whole numbers, against all values that a byte has."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest

from weft.core.node import Node, make
from weft.core.types import DTYPES, DType, TensorType, bf16, f8e4m3fn, f16, f32, i8, u8
from weft.scalar.intervals import Interval
from weft.scalar.nest import Buffer, Load
from weft.scalar.ops import ROUNDS, apply, cast, constant, evaluate_term
from weft.scalar.wholes import is_exact, wholes


def number(value: float) -> Node:
    return constant(value, f32)


def times(q: Node, *factors: float) -> Node:
    return reduce(lambda t, n: apply("multiply", t, number(n)), factors, cast(q, f32))


def less(q: Node, by: float) -> Node:
    return apply("subtract", cast(q, f32), number(by))


TERMS: dict[str, tuple[Callable[[Node], Node], Interval | None]] = {
    "a nibble": (lambda q: less(apply("and", q, constant(15, u8)), 8), (-8, 7)),
    "the other": (lambda q: cast(apply("shift_right", q, constant(4, u8)), f32), (0, 15)),
    "all": (lambda q: less(q, 8), (-8, 247)),
    "less a half": (lambda q: less(q, 0.5), None),
    "a square": (lambda q: apply("multiply", times(q), times(q)), (0, 255**2)),
    "beyond f32": (lambda q: times(q, 256, 256, 256), None),
    "a choice": (lambda q: apply("where", apply("lt", q, constant(3, u8)), q, q), (0, 255)),
    "a wrap": (lambda q: apply("add", q, q), (0, 255)),
    "a sign": (lambda q: cast(cast(q, i8), f32), (-128, 127)),
    "a quotient": (lambda q: apply("divide", cast(q, f32), number(2)), None),
}


def byte(dtype: DType = u8) -> Node:
    return make(Load(Buffer("q", TensorType(dtype, (1,)))), constant(0))


def values(term: Node, q: Node) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(evaluate_term(term, {q: np.arange(256, dtype=np.uint8)}))


@pytest.mark.parametrize("name", TERMS)
def test_every_value_is_inside(name: str) -> None:
    q = byte()
    term, want = TERMS[name][0](q), TERMS[name][1]
    assert wholes(term) == want
    if want is not None:
        found = values(term, q).astype(np.float64)
        assert (found == np.floor(found)).all() and (want[0] <= found).all()
        assert (found <= want[1]).all()


@pytest.mark.parametrize("dtype", [bf16, f16, f8e4m3fn], ids=str)
@pytest.mark.parametrize("name", TERMS)
def test_what_is_exact_is_not_rounded(name: str, dtype: DType) -> None:
    q = byte()
    term = TERMS[name][0](q)
    if term.type.dtype is f32 and is_exact(term, dtype):
        rounded = apply(ROUNDS[dtype].name, term)
        np.testing.assert_array_equal(values(rounded, q), values(term, q))


def test_floats_that_others_have() -> None:
    assert all(is_exact(cast(byte(f8e4m3fn), f32), d) for d in (bf16, f16))
    assert not is_exact(cast(byte(f16), f32), bf16) and not is_exact(cast(byte(bf16), f32), f16)
    assert not is_exact(cast(byte(DTYPES["i16"]), f32), f16)
    assert is_exact(cast(byte(), f32), bf16) and not is_exact(times(byte(), 2), bf16)
