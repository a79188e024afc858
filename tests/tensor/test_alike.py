"""Keys of prices: which kernels are alike, and which are not."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from tests.rules.samples import tensor
from weft.core.node import postorder
from weft.core.types import f32
from weft.scalar import ops as scalar
from weft.tensor import build
from weft.tensor.alike import Prices
from weft.tensor.build import Tensor
from weft.tensor.ops import Input

X, Y, Z = (tensor(name, f32, 8, 16) for name in "xyz")
ROW = tensor("row", f32, 16)


def f(x: Tensor) -> Tensor:
    return scalar.sigmoid(x)  # type: ignore[return-value]


def sum_of(*terms: Tensor) -> Tensor:
    first, *rest = terms
    for t in rest:
        first = first + t
    return first


def key(prices: Prices, *outputs: Tensor) -> Hashable:
    nodes = tuple(t.node for t in outputs)
    return prices.key({n: isinstance(n.op, Input) for n in postorder(*nodes)}, nodes)


Outputs = tuple[Tensor, ...]
ALIKE: dict[str, tuple[Outputs, Outputs]] = {
    "a sum in another order": ((sum_of(X, f(Y), Z),), (sum_of(X, Y, f(Z)),)),
    "other names": ((X * f(Y),), (Z * f(X),)),
    "other constants": ((X * 2.5,), (Y * 3.5,)),
    "another slice": ((build.slice_(X, 0, 1, 2),), (build.slice_(X, 0, 3, 2),)),
    "another part inlined": (
        (build.concat([X, X, f(Y), Z, X], 0),), (build.concat([X, f(Y), X, Z, X], 0),),
    ),
}  # fmt: skip
APART: dict[str, tuple[Outputs, Outputs]] = {
    "one more": ((sum_of(X, f(Y), Z),), (sum_of(X, f(Y), f(Z)),)),
    "one input twice": ((X * f(X),), (X * f(Y),)),
    "another function": ((X * f(Y),), (X + f(Y),)),
    "one value twice": ((f(X * Y) + (X * Y),), (f(X * Y) + (X * Z),)),
    "a part of a sum stored": ((sum_of(X, Y, Z),), (sum_of(X, Y, Z), sum_of(X, Y))),
    "another step": ((build.slice_(X, 0, 0, 4),), (build.slice_(X, 0, 0, 4, 2),)),
    "another axis": ((build.total(X, (0,)),), (build.total(X, (1,)),)),
    "broadcast": ((X + Y,), (X + build.broadcast(ROW, (8, 16)),)),
    "parts of other sizes": (
        (build.concat([X, Y], 0),), (build.concat([X, build.slice_(Y, 0, 0, 4)], 0),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", ALIKE.values(), ids=ALIKE)
def test_alike(pair: tuple[Outputs, Outputs]) -> None:
    prices = Prices()
    assert key(prices, *pair[0]) == key(prices, *pair[1])


@pytest.mark.parametrize("pair", APART.values(), ids=APART)
def test_apart(pair: tuple[Outputs, Outputs]) -> None:
    prices = Prices()
    assert key(prices, *pair[0]) != key(prices, *pair[1])
