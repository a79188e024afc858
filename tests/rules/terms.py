"""Random typed terms for the wildcards of a rule, at the scalar and at the tensor level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.core.errors import VerifyError
from weft.core.graph import Graph
from weft.core.node import Node, make
from weft.core.rules import Call, Literal, Pattern, RuleSet, Vocabulary, Wildcard
from weft.core.types import DTYPES, DType, TensorType, boolean, f32
from weft.tensor.ops import Input

SHAPE = (3, 8)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-3, 6e4, -6e4, 2.5, -2.5]
LITERALS = [0, 1, -1, 2, -2, 3, 0.5, -0.5, 0.25, 8, 100]


def normal(rules: RuleSet, term: Node, trace: Counter[str] | None = None) -> Node:
    """The term rewritten until no rule applies anywhere in it."""
    return rules.rewrite(Graph("tensor", "main", (), (term,)), trace).outputs[0]


def values(dtype: DType, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Ordinary and special numbers mixed: NaN, Inf, -0.0, the extreme integers."""
    if dtype is boolean:
        return random.integers(0, 2, shape).astype(bool)
    if dtype.is_float:
        out = random.normal(0, 3, shape)
        pick = random.random(shape) < 0.4
        out[pick] = random.choice(SPECIAL, shape)[pick]
        with np.errstate(all="ignore"):
            return out.astype(dtype.numpy)
    if dtype.kind == "pair":
        low, high = (values(f32, shape, random) for _ in range(2))
        return np.stack((low, high), -1).view(dtype.numpy)[..., 0]
    limits = np.iinfo(dtype.numpy)
    out = random.integers(max(limits.min, -9), 9, shape).astype(dtype.numpy)
    pick = random.random(shape) < 0.3
    out[pick] = random.choice([limits.min, limits.max, 0, 1], shape)[pick]
    return out


def literal(value: Any, dtype: DType, build: Vocabulary) -> Node | None:
    """The constant, when the dtype has it."""
    if dtype is boolean and value not in (0, 1):
        return None
    if not dtype.is_float and (value != value or value in (np.inf, -np.inf)):
        return None
    if not dtype.is_float and float(value) != int(value):
        return None
    if dtype.kind == "uint" and value < 0:
        return None
    kind = float if dtype.is_float else bool if dtype is boolean else int
    return build.literal(kind(value), dtype)


class Writer:
    """Writes a pattern as a term: one dtype per wildcard, leaves by `leaf(name, dtype)`."""

    def __init__(self, build: Vocabulary, leaf: Any, random: np.random.Generator) -> None:
        self.build, self.leaf, self.random = build, leaf, random
        self.found: dict[str, Node] = {}

    def write(self, form: Pattern, dtype: DType) -> Node | None:
        if isinstance(form, Literal):
            return literal(form.value, dtype, self.build)
        if isinstance(form, Wildcard):
            if form.name not in self.found:
                picked = LITERALS[self.random.integers(len(LITERALS))]
                node = (
                    literal(picked, dtype, self.build)
                    if form.literal
                    else self.leaf(form.name, dtype)
                )
                if node is None:
                    return None
                self.found[form.name] = node
            return self.found[form.name]
        assert isinstance(form, Call) and form.args is not None
        dtypes = [dtype] * len(form.args)
        if form.head == "where":
            dtypes[0] = boolean
        if form.head == "not" and isinstance(form.args[0], Call) and form.args[0].head in COMPARES:
            dtypes = [dtype]
        args = [self.write(a, d) for a, d in zip(form.args, dtypes, strict=True)]
        if any(a is None for a in args):
            return None
        try:
            return self.build.call(form.head, *args)
        except VerifyError:
            return None


COMPARES = {"eq", "ne", "lt", "le", "gt", "ge"}


def written(form: Pattern, build: Vocabulary, leaf: Any, seed: int) -> Iterator[Node]:
    """The pattern as terms over every dtype that fits it, several draws of literals each."""
    random = np.random.default_rng(seed)
    for dtype in DTYPES.values():
        for _ in range(12):
            node = Writer(build, leaf, random).write(form, dtype)
            if node is not None:
                yield node


def tensor_leaf(name: str, dtype: DType) -> Node:
    return make(Input(name, TensorType(dtype, SHAPE)))


def generated(form: Pattern) -> bool:
    """The pattern names functions only, so terms can be written from it."""
    if isinstance(form, Call):
        structural = form.args is None or form.head in STRUCTURAL
        return not structural and all(map(generated, form.args or ()))
    return True


STRUCTURAL = {"view", "reduce", "index", "scan", "map", "apply", "gather", "scalar"}


def assert_same(after: np.ndarray, before: np.ndarray, rounds: bool) -> None:
    """Bit for bit but for a NaN's payload; within rounding where the rule reassociates."""
    assert after.dtype == before.dtype and after.shape == before.shape
    if after.dtype.kind in "iub":
        np.testing.assert_array_equal(after, before)
        return
    if after.dtype.kind == "c":  # a pair: both of its numbers
        after, before = after.view(np.float32), before.view(np.float32)
    a, b = after.astype(np.float64), before.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    if not rounds:
        np.testing.assert_array_equal(a, b)
        numbers = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a)[numbers], np.signbit(b)[numbers])
        return
    tolerance = {8: 1e-12, 4: 1e-5, 2: 4e-2}[after.dtype.itemsize]
    limit = {8: 1e150, 4: 1e30, 2: 3e4}[after.dtype.itemsize]  # beyond, one side may overflow
    near = ~(np.abs(a) > limit) | ~(np.abs(b) > limit)
    np.testing.assert_allclose(a[near], b[near], rtol=tolerance, atol=tolerance)
