"""Folds in the reference interpreter: arrays of carriers, folded along the dimensions of loops.

sums = Carriers(fold, depth=1, identity=[np.float32(0)], widen=False)
sums.add([parts], loops=3)       # folds dimensions 2 and 1 of parts into sums.values
sums.values
"""

from dataclasses import replace
from typing import Any

import numpy as np

from weft.core.node import postorder
from weft.interpret.memory import element
from weft.scalar.nest import Fold
from weft.scalar.ops import Constant, evaluate_term

Arrays = list[Any]  # one per carrier


class Carriers:
    """The values of a fold's carriers, each over the `depth` loops around the declaring loop."""

    def __init__(self, fold: Fold, depth: int, identity: Arrays, widen: bool) -> None:
        self.depth, self.identity, self.values = depth, identity, identity
        left, right = (
            replace(fold, labels=tuple(side + n for n in fold.labels)).accs
            for side in ("left ", "right ")
        )
        self.sides = (*left, *right)
        self.results = fold.monoid.combine(left, right)
        self.literals = {
            n: element(n.op.dtype, widen).type(n.op.value)
            for n in postorder(*self.results)
            if isinstance(n.op, Constant)
        }

    def combine(self, left: Arrays, right: Arrays) -> Arrays:
        """Apply the monoid's combine to arrays."""
        known = self.literals | dict(zip(self.sides, (*left, *right), strict=True))
        return [evaluate_term(r, known) for r in self.results]

    def add(self, parts: Arrays, loops: int) -> Arrays:
        """Fold the parts over the loops from `depth` on, innermost first, into the values."""
        for axis in reversed(range(self.depth, loops)):
            parts = self._fold(parts, axis)
        self.values = self.combine(self.values, parts)
        return self.values

    def _fold(self, values: Arrays, axis: int) -> Arrays:
        """Fold a dimension to length 1: combine its halves, again and again."""
        while (n := values[0].shape[axis]) > 1:
            half = (n + 1) // 2
            early = _part(values, axis, slice(0, n - half))
            both = self.combine(early, _part(values, axis, slice(half, n)))
            if n % 2:
                middle = _part(values, axis, slice(half - 1, half))
                both = [np.concatenate(p, axis) for p in zip(both, middle, strict=True)]
            values = both
        return values


def _part(values: Arrays, axis: int, which: slice) -> Arrays:
    return [v[(slice(None),) * axis + (which,)] for v in values]
