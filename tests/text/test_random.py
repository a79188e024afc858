"""Random nests and graphs round-trip; randomly damaged text raises WeftError and nothing else."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.samples import SAMPLES, f, same
from weft.core.errors import WeftError
from weft.core.node import Node, make
from weft.core.types import DTYPES, TensorType, boolean, f32
from weft.scalar.monoid import MONOIDS
from weft.scalar.nest import Buffer, Fold, For, Kernel, Load, Program, Stmt, Store, Update
from weft.scalar.ops import apply, axis, constant, where
from weft.tensor.ops import View
from weft.text import parse_program, print_program

X, Y = Buffer("x", TensorType(f32, (8, 9))), Buffer("y", TensorType(f32, (8,)))
INDEX = ("add", "subtract", "multiply", "floordiv", "floormod", "minimum", "maximum")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


class Draw:
    """Random well-typed terms and statements."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.axes = 0
        self.accs = 0

    def index(self, axes: list[Node], depth: int = 3) -> Node:
        if depth == 0 or self.random.random() < 0.3:
            return self.random.choice([*axes, constant(self.random.randint(-9, 9))])
        name = self.random.choice(INDEX)
        return f(name, self.index(axes, depth - 1), self.index(axes, depth - 1))

    def logic(self, axes: list[Node], depth: int = 2) -> Node:
        kind = self.random.randint(0, 3) if depth else 3
        if kind == 0:
            return f("not", self.logic(axes, depth - 1))
        if kind < 3:
            name = ("", "and", "or")[kind]
            return f(name, self.logic(axes, depth - 1), self.logic(axes, depth - 1))
        return f(self.random.choice(COMPARE), self.index(axes, depth), self.index(axes, depth))

    def value(self, axes: list[Node], accs: list[Node], depth: int = 3) -> Node:
        kind = self.random.randint(0, 6) if depth else self.random.randint(0, 2)
        if kind == 0 or (kind == 1 and not accs):
            return constant(
                self.random.choice([0.5, -0.0, 1e-30, float("inf"), float("nan"), -3.0])
            )
        if kind == 1:
            return self.random.choice(accs)
        if kind == 2:
            return make(Load(X), self.index(axes), self.index(axes))
        if kind == 3:
            mask = (self.logic(axes), constant(0.0))
            return make(Load(X, True), self.index(axes), self.index(axes), *mask)
        one, two = self.value(axes, accs, depth - 1), self.value(axes, accs, depth - 1)
        if kind == 4:
            return apply(where, self.logic(axes), one, two)
        return f(self.random.choice(("add", "multiply", "maximum", "power")), one, two)

    def block(self, axes: list[Node], depth: int) -> tuple[Stmt, ...]:
        stmts: list[Stmt] = []
        accs: list[Node] = []
        for _ in range(self.random.randint(1, 3)):
            if depth and self.random.random() < 0.6:
                stmts.append(self.loop(axes, depth, accs))
            else:
                mask = self.logic(axes) if self.random.random() < 0.3 else None
                stmts.append(Store(Y, (self.index(axes),), self.value(axes, accs), mask))
        return tuple(stmts)

    def loop(self, axes: list[Node], depth: int, accs: list[Node]) -> For:
        variable = axis(f"a{self.axes}")
        self.axes += 1
        hi = f("minimum", f("add", axes[-1], 4), 9) if axes and depth == 1 else constant(9)
        lo = axes[-1] if axes and depth == 1 else constant(0)
        inner = [*axes, variable]
        role = self.random.choice(("free", "reduce", "scan"))
        bind = self.random.choice(("", "serial", "vector"))
        folds: list[Fold] = []
        body = self.block(inner, depth - 1)
        for _ in range(self.random.randint(0, 2)):
            fold, update = self.update(inner)
            folds.append(fold)
            accs.extend(a for a in fold.accs if a.type.dtype is f32)
            wrap = self.random.random() < 0.3
            body = (self.wrapped(update) if wrap else update, *body)
        self.random.shuffle(folds)
        return For(variable, lo, hi, body, self.random.randint(1, 2), role, bind, tuple(folds))

    def wrapped(self, update: Update) -> For:
        variable = axis(f"a{self.axes}")
        self.axes += 1
        role = self.random.choice(("free", "reduce"))
        return For(variable, constant(0), constant(2), (update,), role=role)

    def update(self, axes: list[Node]) -> tuple[Fold, Update]:
        monoid = MONOIDS[self.random.choice(("sum", "max", "any", "argmax", "welford"))]
        dtype = boolean if monoid.name == "any" else f32
        value = self.logic(axes) if dtype is boolean else self.value(axes, [])
        dtypes = monoid.carriers((dtype,))
        labels = tuple(f"acc{self.accs + i}" for i in range(len(dtypes)))
        self.accs += len(dtypes)
        fold = Fold(labels, monoid, dtypes, finite=self.random.random() < 0.3)
        if self.random.random() < 0.2:
            return fold, Update(fold, monoid.identity((dtype,)), partial=True)
        return fold, Update(fold, (value, axes[-1]) if monoid.indexed else (value,))


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_random_nests_read_back(seed: int) -> None:
    kernel = Kernel("k", (X,), (Y,), Draw(seed).block([], 3))
    program = Program("loop", "main", (X,), (Y,), (kernel,))
    text = print_program(program)
    again = parse_program(text)
    assert same(again, program), text
    assert print_program(again) == text


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_random_index_maps_read_back(seed: int) -> None:
    draw, axes = Draw(seed), [axis("i0"), axis("i1")]
    fill = draw.random.choice([0, 0.0, -0.0, 1.5, float("nan"), -float("inf")])
    view = View((3, 4), (draw.index(axes, 5),), draw.logic(axes, 4), fill)
    text = "program tensor main\ninput x: f32[7]\nv0 = {}: f32[3,4]\noutput v0\n"
    graph = parse_program(text.format("view{[3,4] -> (i0)}(x)"))
    node = make(view, graph.inputs[0])
    graph = type(graph)("tensor", "main", graph.inputs, (node,))
    assert parse_program(print_program(graph)).outputs[0] is node


@given(st.sampled_from(sorted(DTYPES)), st.floats(), st.integers(0, 1))
def test_literals_are_exact(name: str, number: float, kind: int) -> None:
    dtype = DTYPES[name]
    value = constant(number if dtype.is_float else kind, dtype)
    store = Store(Buffer("y", TensorType(dtype, ())), (), value)
    program = Program("loop", "m", (), (), (Kernel("k", (), (store.buffer,), (store,)),))
    assert same(parse_program(print_program(program)), program)


TOKENS = (
    "for in 0 .. a0 : # free ( ) [ ] { } , ; = <- -> x y v0 -1 true f32 load if else by and".split()
)


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_text_raises_weft_errors_only(name: str) -> None:
    text = print_program(SAMPLES[name])
    words = re.findall(r"\w+|\s+|[^\w\s]", text)
    rng = random.Random(name)
    for _ in range(400):
        damaged = list(words)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(damaged))
            kind = rng.randint(0, 4)
            other = rng.choice(TOKENS) if kind < 2 else rng.choice(words)
            damaged[at : at + (kind != 1)] = [] if kind == 4 else [other]
        try:
            print_program(parse_program("".join(damaged)))
        except WeftError as e:
            assert "\n" not in e.message
