"""vectorize_loops: runs the axis with the cheapest accesses over the lanes of vector registers.

before  for a0 in 0..32:  # free            after  for a0 in 0..32:  # free
            for a1 in 0..100:  # free                  for b0 in 0..100 by 16:  # free
                y[a0, a1] = ...                            for a1 in b0..min(b0 + 16, 100):
                                                               y[a0, a1] = ...

A loop may run over lanes although it has loops inside it: all of them then work on vectors
(a column sum reads whole rows). Every loop is priced as such, against pricing its inner loops.
"""

from collections.abc import Iterator
from dataclasses import replace

from weft.core.node import Node, postorder
from weft.scalar.blocks import loops_in, map_loops
from weft.scalar.choices import Choices
from weft.scalar.nest import (
    Block,
    For,
    Kernel,
    Load,
    Running,
    Stmt,
    Store,
    free_variables,
    walk,
)
from weft.scalar.ops import CASTS, Apply, function_of, is_index
from weft.targets.machine import Machine
from weft.tile.analysis.access import length, ranges_in, stride_of, strides, trips
from weft.tile.moves.loops import Labels, blocked, vectors
from weft.tile.price.axes import Axes, every_axis, lanes_for

REGISTERS = 16  # for what vectors side by side hold while a loop inside runs
GATHERS = 2  # vectors side by side that gather: each is many instructions
PARTS = 4  # independent accumulators, or vectors side by side, that hide an add's latency
NAMES = {str(d) for d in CASTS}
LONG = 16  # vectors side by side where loops inside go from row to row: a long piece of each


def vectorize_loops(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Choose a vector axis for every nest that has none."""
    labels, ranges = Labels(kernel.body), ranges_in(kernel.body)

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.lanes or stmt.bind == "register":
            return stmt
        if any(s.bind for s in loops_in((stmt,))):
            return replace(stmt, body=tuple(map(one, stmt.body)), bind=stmt.bind or "serial")
        found = {_told(axes): (cost, axes) for cost, axes in every_axis(stmt, target, ranges)}
        cost, chosen = found[choices.pick("vector_axis", found, lambda axes: found[axes][0])]
        return apply_choice(stmt, chosen, target, labels, choices) if cost else stmt

    return replace(kernel, body=tuple(map(one, kernel.body)))


def _told(axes: Axes) -> str:
    return "+".join(sorted(axis.op.label for axis in axes)) or "none"  # type: ignore[attr-defined]


def apply_choice(
    stmt: For, chosen: Axes, target: Machine, labels: Labels, choices: Choices, around: int = 1
) -> For:
    """Block the chosen loops by lanes, several vectors at a time where that hides latency.

    `around`: how often the loop runs.
    """
    turns = around * trips(stmt)
    body = map_loops(stmt.body, lambda s: apply_choice(s, chosen, target, labels, choices, turns))
    if stmt.axis not in chosen:
        return replace(stmt, body=body, bind="serial")
    lanes = lanes_for(stmt, target)
    widest = max([s.buffer.type.dtype.bytes for s in walk(body) if isinstance(s, Store)], default=4)
    few = min(lanes, target.lanes(widest))  # a square's columns are registers
    squares = tuple(_in_squares(s, stmt.axis, few, labels) for s in body)
    lanes = lanes if squares == body else few
    inner = squares == body and any(isinstance(s, For) for s in stmt.body)
    most = LONG if turns >= LONG * lanes * 2 * target.cores else PARTS  # blocks for every core
    most = GATHERS if inner and _gathers(stmt) else most
    parts = PARTS if stmt.role == "reduce" else most if inner else 1
    held = sum(len(f.labels) for loop in loops_in((stmt,)) for f in loop.folds) + _outside(stmt)
    fit = max(1, min(LONG, trips(stmt) // lanes, REGISTERS // max(1, held)))
    parts = min(parts, fit)
    sides = (parts, *(n for n in (1, 2, 4, 8, 16) if n <= fit and n != parts))
    parts = choices.pick("vectors", sides, lambda n: abs(n - parts))

    def block(lo: Node, hi: Node) -> Block:
        if parts == 1:
            return (For(stmt.axis, lo, hi, squares, 1, stmt.role, f"vector{lanes}"),)
        return (vectors(stmt, lo, hi, lanes, labels, squares),)

    return blocked(stmt, labels.axis("b"), lanes * parts, block)


def _terms(stmts: Block) -> Iterator[Node]:
    return postorder(*(t for s in walk(stmts) if not isinstance(s, For) for t in s.terms()))


def _gathers(stmt: For) -> bool:
    """Whether lanes of a load in the loops inside are apart by no stride."""
    read = (n for s in stmt.body if isinstance(s, For) for n in _terms((s,)))
    ranges = ranges_in((stmt,))
    return any(isinstance(n.op, Load) and stride_of(n, stmt.axis, ranges) is None for n in read)


def _outside(stmt: For) -> int:
    """How many vectors the loops inside read that are computed before them."""
    inside = frozenset(loop.axis for loop in loops_in(stmt.body))

    def moves(n: Node) -> bool:
        return not is_index(n) and stmt.axis in free_variables(n)

    within = [n for s in stmt.body if isinstance(s, For) for n in _terms((s,))]
    within = [n for n in within if not inside.isdisjoint(free_variables(n))]
    read = dict.fromkeys(a for n in within for a in n.args if isinstance(a.op, Load | Apply))
    return sum(moves(a) for a in read if inside.isdisjoint(free_variables(a)))


def _in_squares(stmt: Stmt, axis: Node, lanes: int, labels: Labels) -> Stmt:
    """A scan along rows, where each lane has a row: `lanes` elements of every row at a time."""
    if not isinstance(stmt, For) or stmt.role != "scan" or (length(stmt) or 0) < lanes:
        return stmt
    ranges = ranges_in((stmt,))
    both = ((dict(strides(s, axis, ranges)), strides(s, stmt.axis, ranges)) for s in stmt.body)
    steps = {(across.get(part) in (0, 1), step) for across, along in both for part, step in along}
    # one term is one value: side by side, what is computed from a running value would be many
    stores = [s for s in stmt.body if isinstance(s, Store)]
    exact = (s.value.args[0] if function_of(s.value) in NAMES else s.value for s in stores)
    bare = all(isinstance(value.op, Running) for value in exact)
    others = (strides(s, axis, ranges) for s in stmt.body if s not in stores)
    bare = bare and all(any(step != 0 for _, step in found) for found in others)
    if not bare or not {(False, 1), (False, -1)} & steps:
        return stmt
    return blocked(replace(stmt, bind="register"), labels.axis("b"), lanes)
