"""load_matrices: reads the fragments of mma.sync from shared memory by ldmatrix.

before  v0 = load x_s[..]                       after  v0 = load_matrices{x_s, 8}(..)
        v1 = load x_s[.. + 1]                          v1 = load_matrices{y_s, 4}(..)
        ... 10 more                                    mma acc0, .. [v0] [v1]
        mma acc0, .. [pack(v0, v1), ..] [..]

A lane names where a row of 8 elements starts, and gets a pair of each of two or four matrices (PTX
ISA, "ldmatrix"). Which rows these are follows from the addresses of all lanes: of a matrix lane t
has the columns t % 4 * 2 and the next of row t // 4; or, `across`, these rows of column t // 4,
which otherwise costs a load for each element.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weft.core.node import Node, make, substitute
from weft.kernel.ops import ROW, LoadMatrices, Mma
from weft.kernel.spread_threads import THREAD, runs_once
from weft.scalar.affine import linear
from weft.scalar.divisors import Divisors, of_axis, of_terms
from weft.scalar.index import simplify
from weft.scalar.nest import Block, For, Kernel, Load, Stmt, free_variables
from weft.scalar.ops import apply, constant, evaluate_term
from weft.targets.gpu import GPU


def load_matrices(kernel: Kernel, target: GPU) -> Kernel:
    """Load the operands of every mma.sync whose elements lie in rows as matrices."""
    return replace(kernel, body=_Fragments(target.warp).block(kernel.body, {}))


@dataclass
class _Fragments:
    """A walk over a kernel: its threads, and what axes of loops that run once stand for."""

    warp: int
    threads: int = 1
    values: dict[Node, Node] = field(default_factory=dict[Node, Node])

    def block(self, stmts: Block, known: Divisors) -> Block:
        return tuple(self.statement(s, known) for s in stmts)

    def statement(self, stmt: Stmt, known: Divisors) -> Stmt:
        if isinstance(stmt, For):
            if stmt.axis is THREAD:
                self.threads = stmt.extent or 1
            elif runs_once(stmt):
                self.values[stmt.axis] = substitute((stmt.lo,), self.values)[0]
            inside = {**known, stmt.axis: of_axis(stmt, known)}
            return replace(stmt, body=self.block(stmt.body, inside))
        if isinstance(stmt, Mma) and len(stmt.left) > 1:
            sides = (self.matrices(side, known) or side for side in (stmt.left, stmt.right))
            return Mma(stmt.sums, *sides)
        return stmt

    def matrices(self, pairs: Sequence[Node], known: Divisors) -> tuple[Node] | None:
        """One load for all pairs; None where these are not in rows of matrices."""
        loads = [part for pair in pairs for part in pair.args]
        first, *others = {load.op for load in loads}
        if others or not isinstance(first, Load) or first.masked or first.buffer.space != "shared":
            return None
        places = substitute(tuple(load.args[0] for load in loads), self.values)
        terms = [linear(place)[0] for place in places]
        apart = [{a: k for a, k in t.items() if THREAD not in free_variables(a)} for t in terms]
        own = {v for t in terms for a in t if a not in apart[0] for v in free_variables(a)}
        same = all(t == apart[0] for t in apart)
        if own != {THREAD} or not same or of_terms(apart[0], known) % ROW:
            return None
        at = np.stack([self.over_threads(place) for place in places])
        for across in (False, True):
            row = simplify(self.row(places[0], at[:, 0], across), {THREAD: (0, self.threads - 1)})
            if self.are_rows(self.over_threads(row), at, across):
                return (make(LoadMatrices(first.buffer, 2 * len(pairs), across), row),)
        return None

    def over_threads(self, term: Node) -> Any:
        """The values of an index in all threads, where other axes are 0."""
        others = dict.fromkeys(free_variables(term), np.zeros(1, np.int64))
        known = {**others, THREAD: np.arange(self.threads)}
        return evaluate_term(term, known) + np.zeros(self.threads, np.int64)

    def row(self, place: Node, at: Any, across: bool) -> Node:
        """Where the row of a lane starts, if `place` is its first element, and `at` are its all."""
        lane, line = (apply("floormod", THREAD, constant(n)) for n in (self.warp, ROW))
        pair, odd = (apply(name, line, constant(2)) for name in ("floordiv", "floormod"))
        first = pair if across else apply("multiply", line, constant(4))
        of_warp = apply(
            "multiply", apply("floordiv", THREAD, constant(self.warp)), constant(self.warp)
        )
        owner = apply("add", of_warp, first)
        total = substitute((place,), {THREAD: owner})[0]
        far = [(odd, at[1] - at[0])] if across else []  # from matrix to matrix, or line to line
        halves = (apply("floormod", lane, constant(2 * ROW)), lane)
        far += [
            (apply("floordiv", half, constant(n)), at[2 * i] - at[0])
            for i, (half, n) in enumerate(zip(halves, (ROW, 2 * ROW), strict=True), 1)
            if 2 * i < len(at)
        ]
        for turn, distance in far:
            total = apply("add", total, apply("multiply", turn, constant(int(distance))))
        return total

    def are_rows(self, rows: Any, at: Any, across: bool) -> bool:
        """Whether lanes have at `at`, two by two, what ldmatrix gives them of these rows."""
        lane = np.arange(self.threads) % self.warp
        first, group, pair = np.arange(self.threads) - lane, lane // 4, lane % 4 * 2
        for i in range(len(at)):
            line, column = (pair + i % 2, group) if across else (group, pair + i % 2)
            if (rows[first + i // 2 * ROW + line] + column != at[i]).any():
                return False
        return not (rows % ROW).any()
