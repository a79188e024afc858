"""Random typed terms for the wildcards of a rule, at the scalar and at the tensor level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from weft.core.errors import VerifyError
from weft.core.node import Graph, Node, make
from weft.core.rules import Call, Literal, Pattern, Rule, RuleSet, Vocabulary, Wildcard
from weft.core.types import DTYPES, DType, TensorType, boolean, f32
from weft.interpret.tensors import evaluate
from weft.tensor.ops import Input, Reduce, Scan

SHAPE = (3, 8)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-3, 6e4, -6e4, 2.5, -2.5]
LITERALS = [0, 1, -1, 2, -2, 3, 0.5, -0.5, 0.25, 8, 100]


def normal(rules: RuleSet, term: Node, trace: Counter[str] | None = None) -> Node:
    """The term rewritten until no rule applies anywhere in it."""
    return rules.rewrite(Graph("tensor", "main", (), (term,)), trace).outputs[0]


def values(
    dtype: DType,
    shape: tuple[int, ...],
    random: np.random.Generator,
    where: str = "ordinary",
    signs: tuple[int, ...] = (-1, 1),
) -> np.ndarray:
    """Ordinary and special numbers mixed: NaN, Inf, -0.0, the extreme integers.

    where   of floats: "ordinary"; "ends", with the greatest and the least among the special ones;
            "top" or "bottom", all near the greatest or the least normal number
    """
    if dtype is boolean:
        return random.integers(0, 2, shape).astype(bool)
    if dtype.is_float and where in ("top", "bottom"):
        near = float(ml_dtypes.finfo(dtype.numpy).max), float(ml_dtypes.finfo(dtype.numpy).tiny)
        scale = random.uniform(0, 9, shape)
        by = 2.0**-scale if where == "top" else 2.0**scale
        return (random.choice(signs, shape) * near[where == "bottom"] * by).astype(dtype.numpy)
    if dtype.is_float:
        limits = ml_dtypes.finfo(dtype.numpy)
        ends = [limits.max, limits.min, limits.tiny, limits.smallest_subnormal]
        special = [*SPECIAL, *map(float, ends if where == "ends" else [])]
        out = random.normal(0, 3, shape)
        pick = random.random(shape) < 0.4
        out[pick] = random.choice(special, shape)[pick]
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
        assert isinstance(form, Call)
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
        structural = not form.args or form.head in STRUCTURAL
        return not structural and all(map(generated, form.args))
    return True


STRUCTURAL = {"view", "reduce", "index", "scan", "map", "apply", "gather", "scalar"}


def assert_same(after: np.ndarray, before: np.ndarray) -> None:
    """Bit for bit but for a NaN's payload."""
    assert after.dtype == before.dtype and after.shape == before.shape
    if after.dtype.kind in "iub":
        np.testing.assert_array_equal(after, before)
        return
    if after.dtype.kind == "c":  # a pair: both of its numbers
        after, before = after.view(np.float32), before.view(np.float32)
    a, b = after.astype(np.float64), before.astype(np.float64)
    np.testing.assert_array_equal(a, b)
    numbers = ~np.isnan(a)
    np.testing.assert_array_equal(np.signbit(a)[numbers], np.signbit(b)[numbers])


def assert_as_right(
    after: np.ndarray, before: np.ndarray, exact: np.ndarray, size: float | None
) -> None:
    """Within rounding wherever `before` is: of finite numbers of that size, of any without one."""
    assert after.dtype == before.dtype and after.shape == before.shape
    if after.dtype.kind in "iub":
        np.testing.assert_array_equal(after, before)
        return
    if after.dtype.kind == "c":
        after, before, exact = (v.view(np.float32) for v in (after, before, exact))
    tolerance = {8: 1e-12, 4: 1e-5, 2: 4e-2}[after.dtype.itemsize]
    limits = {"rtol": tolerance, "atol": tolerance * (size or 1.0), "equal_nan": True}
    a, b = after.astype(np.float64), before.astype(np.float64)
    right = np.isclose(b, exact, **limits) & (np.isfinite(b) | (size is None))
    wrong = right & ~np.isclose(a, b, **limits)
    assert not wrong.any(), f"{b[wrong]} became {a[wrong]}, where {exact[wrong]} is right"


def assert_rewritten(before: Graph, after: Graph, seed: int, rounds: bool) -> None:
    """The same outputs of the same inputs, to the ends of the range; or within rounding."""
    random = np.random.default_rng(seed)
    sums = any(isinstance(n.op, Reduce | Scan) for n in before.nodes())
    signs = (1,) if sums else (-1, 1)  # what overflows in one order does so in any
    for where in ("ordinary" if rounds else "ends", *4 * ("top",), "bottom"):
        inputs = [values(n.type.dtype, n.type.shape, random, where, signs) for n in before.inputs]
        with np.errstate(all="ignore"):
            old, new = (evaluate(graph, inputs) for graph in (before, after))
            if not rounds:
                for one, other in zip(new, old, strict=True):
                    assert_same(one, other)
                continue
            every = replace(before, outputs=tuple(before.nodes()))
            size = max(map(largest, evaluate(every, inputs, widen=True)))
            exact = evaluate(before, inputs, widen=True)
        for one, other, right in zip(new, old, exact, strict=True):
            assert_as_right(one, other, right, None if where == "ordinary" else size)


def largest(x: np.ndarray) -> float:
    """The greatest absolute value of a finite float."""
    return float(np.max(np.abs(x[np.isfinite(x)]), initial=0)) if x.dtype.kind == "f" else 0.0


def rounds(rule: Rule) -> bool:
    """Whether floats may round differently by the rule, as it says itself."""
    return not rule.soundness.startswith("exact")
