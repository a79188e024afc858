"""The work of fusion grows as the graph does: nests that are lowered, terms in them, counted."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from functools import reduce

import pytest
import torch

import weft
from tests.rules.samples import tensor
from weft.core.node import Graph, postorder
from weft.core.types import f32
from weft.scalar.blocks import nodes
from weft.scalar.nest import Block
from weft.targets.cpu import CPUS
from weft.tensor import build
from weft.tensor.build import Tensor
from weft.tensor.fuse import partition
from weft.tensor.ops import Input
from weft.tile.price.cost import kernel_time_us

TARGET = CPUS["avx512"]
X = tensor("x", f32, 32, 64)
FUNCTIONS = ("sin", "cos", "exp", "tanh", "sigmoid", "log", "erf", "sqrt")


def siblings(n: int) -> list[Tensor]:
    return [X + (i + 2.5) for i in range(n)]


def mixed_siblings(n: int) -> list[Tensor]:
    """No two price alike: each is another chain of functions."""
    draw = random.Random(0)
    out: list[Tensor] = []
    for _ in range(n):
        y = X
        for name in draw.choices(FUNCTIONS, k=4):
            y = y.apply(name, y)
        out.append(y)
    return out


def chain(n: int) -> list[Tensor]:
    y = X
    for i in range(n):
        y = y.apply(FUNCTIONS[i % 8], y)
    return [y]


def diamonds(n: int) -> list[Tensor]:
    """A chain in which all is read twice."""
    y = X
    for i in range(n):
        y = y.apply(FUNCTIONS[i % 8], y) + y * (i + 2.5)
    return [y]


def layers(n: int) -> list[Tensor]:
    """Norms that all read one weight, each after the other."""
    weight, y = tensor("w", f32, 32, 64), X
    for _ in range(n):
        y = y + build.softmax(y, 1) * weight
    return [y]


def recurrence(n: int) -> list[Tensor]:
    """An unrolled loop: all its results in one tensor, and a sum over the steps."""
    weight, states = tensor("w", f32, 64, 64), [X]
    for _ in range(n):
        y = build.matmul(states[-1], weight)
        states.append(y.apply("tanh", y))
    parts = [build.total(y.apply("sigmoid", y), (0,)) for y in states]
    return [build.concat(states, 0), reduce(operator.add, parts)]


PROGRAMS = {f.__name__: f for f in (siblings, mixed_siblings, chain, diamonds, layers)}


def work(outputs: list[Tensor]) -> tuple[int, int]:
    """Nests that are lowered and priced, and the terms in them."""
    roots = tuple(t.node for t in outputs)
    inputs = tuple(n for n in postorder(*roots) if isinstance(n.op, Input))
    nests, terms = 0, 0

    def price(body: Block) -> float:
        nonlocal nests, terms
        nests, terms = nests + 1, terms + sum(1 for _ in nodes(body))
        return kernel_time_us(body, TARGET)

    partition(Graph("tensor", "main", inputs, roots), price, TARGET)
    return nests, terms


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_twice_the_tensors_are_twice_the_work(program: Callable[[int], list[Tensor]]) -> None:
    small, large = work(program(60)), work(program(120))
    assert small[0] > 0
    for few, many in zip(small, large, strict=True):
        assert many <= 2.5 * few


def test_unlike_siblings_are_lowered_a_few_times_each() -> None:
    nests, _ = work(mixed_siblings(100))
    assert nests <= 4 * 100


def test_equal_siblings_are_priced_once() -> None:
    """Joined in rounds, there are few kernels of different sizes."""
    nests, _ = work(siblings(128))
    assert nests < 30


def test_steps_of_a_recurrence_are_priced_once() -> None:
    """Whichever step is inlined into what reads all: kernels have as many sizes, not orders."""
    small, large = work(recurrence(12)), work(recurrence(24))
    assert large[0] <= 1.5 * small[0]
    assert large[0] < 80


@pytest.mark.parametrize("n", [1, 65, 300])
def test_siblings_are_right(n: int) -> None:
    x = torch.linspace(-1, 1, 96).reshape(3, 32)
    compiled = weft.compile(lambda x: [x * (i + 1) for i in range(n)])
    for i, y in enumerate(compiled(x)):
        torch.testing.assert_close(y, x * (i + 1))
    assert len(compiled.report.kernels) <= n // 16 + 1
