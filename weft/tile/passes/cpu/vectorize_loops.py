"""vectorize_loops: runs the axis with the cheapest accesses over the lanes of vector registers.

before  for a0 in 0..32:  # free            after  for a0 in 0..32:  # free
            for a1 in 0..100:  # free                  for b0 in 0..100 by 16:  # free
                y[a0, a1] = ...                            for a1 in b0..min(b0 + 16, 100):
                                                               y[a0, a1] = ...

A loop may run over lanes although it has loops inside it: all of them then work on vectors
(a column sum reads whole rows). Every loop is priced as such, against pricing its inner loops.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter

from weft.core.node import Node, postorder
from weft.scalar import nest
from weft.scalar.affine import Ranges
from weft.scalar.blocks import locals_in, loops_in, map_loops
from weft.scalar.nest import Block, For, Kernel, Load, Stmt, Store, free_variables, walk
from weft.scalar.ops import Apply
from weft.scalar.placing import place
from weft.targets.machine import Machine
from weft.tile.analysis.access import length, ranges_in, stride_of, strides, term_cost, trips
from weft.tile.choices import Choices
from weft.tile.moves.loops import Labels, blocked, vectors

Axes = tuple[float, frozenset[Node]]  # a set of axes, and its cost

PARTS = 4  # independent accumulators, or vectors side by side, that hide an add's latency
LONG = 16  # vectors side by side where loops inside go from row to row: a long piece of each


def vectorize_loops(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Choose a vector axis for every nest that has none."""
    labels = Labels(kernel.body)
    ranges = ranges_in(kernel.body)

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.lanes or stmt.bind == "register":
            return stmt
        if any(s.bind for s in loops_in((stmt,))):
            return replace(stmt, body=tuple(map(one, stmt.body)), bind=stmt.bind or "serial")
        found = {_told(axes): (cost, axes) for cost, axes in every_axis(stmt, target, ranges)}
        cost, chosen = found[choices.pick("vector_axis", found, lambda axes: found[axes][0])]
        return apply_choice(stmt, chosen, target, labels, choices) if cost else stmt

    return replace(kernel, body=tuple(map(one, kernel.body)))


def _told(axes: frozenset[Node]) -> str:
    return "+".join(sorted(axis.op.label for axis in axes)) or "none"  # type: ignore[attr-defined]


def best_axis(stmt: For, target: Machine, ranges: Ranges) -> Axes:
    """Cheapest set of vector axes of a nest (one per path inwards), with its cost."""
    return every_axis(stmt, target, ranges)[0]


def every_axis(stmt: For, target: Machine, ranges: Ranges) -> list[Axes]:
    """Sets of vector axes with their costs, the cheapest first: what one path may have instead."""
    placed = next(s for s in place((stmt,), partial=True) if isinstance(s, For))
    return _every_axis(placed, target, ranges)


@lru_cache(256)
def best_axis_alone(stmt: For, target: Machine) -> Axes:
    """The same for an outermost nest, cached: several prices need it."""
    return best_axis(stmt, target, ranges_in((stmt,)))


def _every_axis(stmt: For, target: Machine, ranges: Ranges) -> list[Axes]:
    inner = [_every_axis(s, target, ranges) for s in stmt.body if isinstance(s, For)]
    own = statements_cost(stmt.body, None, 1, ranges)
    best = [found[0] for found in inner]
    others = ([*best[:i], a, *best[i + 1 :]] for i, found in enumerate(inner) for a in found[1:])
    descend: list[Axes] = []
    for costs, axes in (zip(*one, strict=True) if one else ((), ()) for one in (best, *others)):
        descend.append((trips(stmt) * (sum(costs) + own), frozenset[Node]().union(*axes)))
    if stmt.role == "scan" or trips(stmt) < 2 or not _can_run_lanes(stmt):
        return sorted(descend, key=itemgetter(0))
    lanes = lanes_for(stmt, target)
    cost = nest_cost((stmt,), stmt.axis, lanes, ranges)
    return sorted([*descend, (cost, frozenset((stmt.axis,)))], key=itemgetter(0))


def _can_run_lanes(stmt: For) -> bool:
    """Whether the loop may run over lanes, which share control flow and local buffers."""
    inner = list(loops_in(stmt.body))
    if stmt.role == "reduce" and any(s.role != "reduce" for s in inner):
        return False
    if locals_in(stmt.body):
        return False
    stores = [s for s in walk(stmt.body) if isinstance(s, Store)]
    if stmt.role == "reduce" and any(stmt.axis not in postorder(*s.index) for s in stores):
        return False
    return not any(stmt.axis in free_variables(t) for s in inner for t in (s.lo, s.hi))


def lanes_for(stmt: For, target: Machine) -> int:
    """Lanes such that the widest value moving with the axis fills a register."""
    widest = 4
    loaded: set[Node] = set()  # terms with a load in them; index arithmetic becomes addresses
    stmts = [s for s in walk((stmt,)) if not isinstance(s, For)]
    for term in postorder(*(t for s in stmts for t in s.terms())):
        if isinstance(term.op, Load) or any(a in loaded for a in term.args):
            loaded.add(term)
        value = isinstance(term.op, Load | Apply) and (term in loaded or term.type.dtype.is_float)
        if value and stmt.axis in free_variables(term):
            widest = max(widest, term.type.dtype.bytes)
    return target.lanes(widest)


def nest_cost(block: Sequence[Stmt], axis: Node, lanes: int, ranges: Ranges) -> float:
    """Cost of a placed block whose `axis` runs over lanes, in vector instructions."""
    total = statements_cost(block, axis, lanes, ranges)
    for s in block:
        if isinstance(s, For):
            n = -(-trips(s) // lanes) if s.axis is axis else trips(s)
            total += n * (nest_cost(s.body, axis, lanes, ranges) + 0.5)
            if s.axis is axis and s.role == "reduce":
                total += 4 * sum(1 + f.monoid.cost for f in s.folds)
    return total


def statements_cost(stmts: Sequence[Stmt], axis: Node | None, lanes: int, ranges: Ranges) -> float:
    """Cost of statements once, without loops: uneven accesses take an instruction per lane."""
    total = 0.0
    for s in stmts:
        if isinstance(s, nest.Let):
            total += term_cost(s.term)
            if axis is not None and isinstance(s.term.op, Load):
                total += access_cost(s.term, axis, lanes, ranges)
        elif isinstance(s, nest.Update):
            total += s.fold.monoid.cost * (1.0 if axis is not None else 2.0)
        elif isinstance(s, Store):
            total += 1.0
            if axis is not None:
                total += 0.0 if stride_of(s, axis, ranges) in (0, 1) else lanes * 1.5
    return total


def access_cost(load: Node, axis: Node, lanes: int, ranges: Ranges) -> float:
    """Vector instructions that a load takes beyond one where `axis` runs over lanes."""
    step = stride_of(load, axis, ranges)
    if step == 2 and load.type.dtype.bytes == 4:
        return 2.0  # two loads and a shuffle
    return 0.0 if step in (0, 1) else lanes * (1.0 if step is not None else 2.0)


def apply_choice(
    stmt: For,
    chosen: frozenset[Node],
    target: Machine,
    labels: Labels,
    choices: Choices,
    around: int = 1,
) -> For:
    """Block the chosen loops by lanes, several vectors at a time where that hides latency.

    `around`: how often the loop runs.
    """
    turns = around * trips(stmt)
    body = map_loops(stmt.body, lambda s: apply_choice(s, chosen, target, labels, choices, turns))
    if stmt.axis not in chosen:
        return replace(stmt, body=body, bind="serial")
    lanes = lanes_for(stmt, target)
    squares = tuple(_in_squares(s, stmt.axis, lanes, labels) for s in body)
    inner = squares == body and any(isinstance(s, For) for s in stmt.body)
    most = LONG if turns >= LONG * lanes * 2 * target.cores else PARTS  # blocks for every core
    parts = PARTS if stmt.role == "reduce" else most if inner else 1
    folds = sum(len(f.labels) for loop in loops_in((stmt,)) for f in loop.folds)
    fit = max(1, min(LONG, trips(stmt) // lanes, 16 // max(1, folds)))
    parts = min(parts, fit)
    sides = (parts, *(n for n in (1, 2, 4, 8, 16) if n <= fit and n != parts))
    parts = choices.pick("vectors", sides, lambda n: abs(n - parts))

    def block(lo: Node, hi: Node) -> Block:
        if parts == 1:
            return (For(stmt.axis, lo, hi, squares, 1, stmt.role, f"vector{lanes}"),)
        return (vectors(stmt, lo, hi, lanes, labels, squares),)

    return blocked(stmt, labels.axis("b"), lanes * parts, block)


def _in_squares(stmt: Stmt, axis: Node, lanes: int, labels: Labels) -> Stmt:
    """A scan along rows, where each lane has a row: `lanes` elements of every row at a time."""
    if not isinstance(stmt, For) or stmt.role != "scan" or (length(stmt) or 0) < lanes:
        return stmt
    ranges = ranges_in((stmt,))
    both = ((dict(strides(s, axis, ranges)), strides(s, stmt.axis, ranges)) for s in stmt.body)
    steps = {(across.get(part) in (0, 1), step) for across, along in both for part, step in along}
    # one term is one value: side by side, what is computed from a running value would be many
    stores = [s for s in stmt.body if isinstance(s, Store)]
    bare = all(isinstance(s.value.op, nest.Running) for s in stores)
    others = (strides(s, axis, ranges) for s in stmt.body if s not in stores)
    bare = bare and all(any(step != 0 for _, step in found) for found in others)
    if not bare or not {(False, 1), (False, -1)} & steps:
        return stmt
    return blocked(replace(stmt, bind="register"), labels.axis("b"), lanes)
