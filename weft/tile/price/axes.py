"""The price of running an axis of a nest over lanes, of a vector or of a warp, and the best axes.

best_axis_alone(nest, target)       # (1200.0, {a1}): in vector instructions
access_cost(load, a1, 8, ranges)    # 0.0 where elements lie side by side, 8.0 where they are apart
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter

from weft.core.node import Node, postorder
from weft.scalar import nest
from weft.scalar.blocks import access, address, locals_in, loops_in
from weft.scalar.intervals import Ranges
from weft.scalar.nest import For, Load, Stmt, Store, free_variables, walk
from weft.scalar.ops import Apply, Axis, Constant, Symbol, function_of
from weft.scalar.placing import place
from weft.targets.gpu import GPU
from weft.targets.machine import Machine
from weft.tile.analysis.access import ranges_in, stride_along, stride_of, term_cost, trips, window

PERMUTED = 4.0  # of lanes from one load: their places in it, and the permutation
SETS, WAYS = 4096, 4  # bytes apart, lines are in one set of the nearest cache, which keeps so many
WARP = 32
CONFLICT = 4.0  # vector instructions that an access takes to a line that others evict
Axes = frozenset[Node]
Priced = tuple[float, Axes]


def every_axis(stmt: For, target: Machine, ranges: Ranges) -> list[Priced]:
    """Sets of vector axes of a nest (one per path inwards) with their costs, the cheapest first.

    After that follow sets with what one path may have instead.
    """
    placed = next(s for s in place((stmt,), partial=True) if isinstance(s, For))
    return _every_axis(placed, target, ranges)


@lru_cache(256)
def best_axis_alone(stmt: For, target: Machine) -> Priced:
    """The cheapest set for an outermost nest, cached: several prices need it."""
    return every_axis(stmt, target, ranges_in((stmt,)))[0]


def _every_axis(stmt: For, target: Machine, ranges: Ranges) -> list[Priced]:
    inner = [_every_axis(s, target, ranges) for s in stmt.body if isinstance(s, For)]
    own = statements_cost(stmt.body, None, 1, ranges)
    best = [found[0] for found in inner]
    others = ([*best[:i], a, *best[i + 1 :]] for i, found in enumerate(inner) for a in found[1:])
    paths = (zip(*one, strict=True) if one else ((), ()) for one in (best, *others))
    descend = [(trips(stmt) * (sum(costs) + own), Axes().union(*axes)) for costs, axes in paths]
    if stmt.role == "scan" or trips(stmt) < 2 or not _can_run_lanes(stmt, target):
        return sorted(descend, key=itemgetter(0))
    lanes = lanes_for(stmt, target)
    cost = nest_cost((stmt,), stmt.axis, lanes, ranges)
    return sorted([*descend, (cost, Axes((stmt.axis,)))], key=itemgetter(0))


def _can_run_lanes(stmt: For, target: Machine) -> bool:
    """Whether the loop may run over lanes, which share control flow and local buffers.

    Threads of a GPU share neither: each can run as many iterations as it has.
    """
    inner, free = list(loops_in(stmt.body)), stmt.role == "free"
    stores = [s for s in walk(stmt.body) if isinstance(s, Store)]
    mixed = any(s.role != "reduce" for s in inner)
    mixed = mixed or any(stmt.axis not in postorder(*s.index) for s in stores)
    if locals_in(stmt.body) or (mixed and not free):
        return False
    alone = free and isinstance(target, GPU)
    return alone or not any(stmt.axis in free_variables(s.lo, s.hi) for s in inner)


def lanes_for(stmt: For, target: Machine) -> int:
    """Lanes such that the widest value moving with the axis fills a register."""
    widest = 4
    loaded: set[Node] = set()  # terms with a load in them; index arithmetic becomes addresses
    stmts = [s for s in walk((stmt,)) if not isinstance(s, For | nest.Let)]
    terms = [t for s in stmts for t in s.terms()]
    computed = _computed(*terms)
    for term in postorder(*terms):
        if isinstance(term.op, Load) or any(a in loaded for a in term.args):
            loaded.add(term)
        value = isinstance(term.op, Load | Apply) and (term in loaded or term.type.dtype.is_float)
        if value and term in computed and stmt.axis in free_variables(term):
            widest = max(widest, term.type.dtype.bytes)
    return target.lanes(widest)


def _computed(*roots: Node) -> set[Node]:
    """Terms that are values: not what only widens an index, which a gather takes as it is."""
    seen, indices = set[Node](), set[Node]()
    stack = [*roots]
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        touched = access(term) if isinstance(term.op, Load) else None
        index = touched[1] if touched else ()
        stack += [a for a in term.args if a not in index]
        around = [i for i in index if i not in indices]
        while around:
            at = around.pop()
            indices.add(at)
            narrow = function_of(at) == "i64" and at.args[0].type.dtype.bytes <= 4
            if narrow or isinstance(at.op, Load):
                stack.append(at.args[0] if narrow else at)
            else:
                around += [a for a in at.args if a not in indices]
    return seen


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
            total += 0.0 if axis is not None and _is_even(s.term, axis) else term_cost(s.term)
            if axis is not None and isinstance(s.term.op, Load):
                total += access_cost(s.term, axis, lanes, ranges)
        elif isinstance(s, nest.Update):
            total += s.fold.monoid.cost * (1.0 if axis is not None else 2.0)
        elif isinstance(s, Store):
            total += 1.0
            if axis is not None:
                step = stride_of(s, axis, ranges)
                per_lane = CONFLICT if in_one_set(step, s.buffer.type.dtype.bytes, lanes) else 1.5
                total += 0.0 if step in (0, 1) else lanes * per_lane
    return total


def _is_even(term: Node, axis: Node) -> bool:
    """Whether a number is made of other axes alone: it is a scalar, if not a literal in the end."""
    counted = all(isinstance(n.op, Apply | Axis | Constant | Symbol) for n in postorder(term))
    return counted and axis not in free_variables(term)


def in_one_set(step: int | None, size: int, lanes: int) -> bool:
    """Whether the lanes of a vector, not of a warp, are in lines that evict each other."""
    return step is not None and WAYS < lanes < WARP and step * size % SETS == 0


def access_cost(load: Node, axis: Node, lanes: int, ranges: Ranges) -> float:
    """Vector instructions that a load takes beyond one where `axis` runs over lanes."""
    touched = access(load)
    assert touched is not None, "no load"
    where = address(*touched, ranges)
    step = stride_along(where, axis)
    if step == 2 and load.type.dtype.bytes == 4:
        return 2.0  # two loads and a shuffle
    if step is not None:
        apart = CONFLICT if in_one_set(step, load.type.dtype.bytes, lanes) else 1.0
        return 0.0 if step in (0, 1) else lanes * apart
    near = window(where, axis, lanes, ranges, touched[0].type)
    return lanes * 2.0 if near is None else PERMUTED
