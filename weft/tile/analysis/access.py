"""Reads a nest: strides of its accesses, costs of its terms, and which contraction it computes.

contraction(nest)           # its rows, columns and reduce loops; None when it is something else
stride_along(address, a0)   # elements per step of a0; None when uneven
strip_width(terms, a0, known, ranges)       # 4 neighbours along a0 at once, where all are aligned
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from weft.core.node import Node, bottom_up, postorder, substitute
from weft.core.types import TensorType, boolean
from weft.scalar.affine import factors as parts_of
from weft.scalar.affine import function_of, has_symbol, linear
from weft.scalar.blocks import access, accesses, address, loops_from, loops_in, mask_of, nodes
from weft.scalar.divisors import Divisors, condition_of_all, divisor
from weft.scalar.index import simplify
from weft.scalar.intervals import Interval
from weft.scalar.monoid import SUM
from weft.scalar.nest import Acc, Block, For, Load, Stmt, Store, Update, free_variables, walk
from weft.scalar.ops import (
    CASTS,
    DOTS,
    Apply,
    apply,
    apply_all,
    axis,
    constant,
    is_index,
    value_of,
)
from weft.scalar.reach import axis_range, longest
from weft.scalar.sizes import Size, size, symbols
from weft.scalar.spread import spread

Ranges = dict[Node, Interval]
WIDEST = 16  # bytes of an access


def trips(*loops: For) -> int:
    """The number of iterations of a loop, or of several inside each other.

    It is exact for literal bounds, else the most that lo..min(..) allows. Of a loop that ends at a
    size it is that of the size's hint: good for prices, not for proofs.
    """
    return math.prod(map(_trips, loops))


def _trips(stmt: For) -> int:
    extent = length(stmt) if stmt.extent is None else stmt.extent
    assert extent is not None, f"loop {stmt.label} has no literal length"
    return max(0, math.ceil(extent / stmt.step))


def span(stmt: For) -> Any:
    """hi - lo, a number or a size; None where it depends on loops around, or is 0."""
    if stmt.extent is not None or not has_symbol(stmt.hi):
        return stmt.extent or None
    extent = size(apply("subtract", stmt.hi, stmt.lo))
    return None if extent == 0 or free_variables(constant(extent)) else extent


def tile_length(stmt: For, most: int) -> int:
    """Iterations of a loop to unroll: no more than it has, or a power of two where a size decides.

    Halves of that, which divide it, take the rest: see tile/moves/peel.py.
    """
    return 1 << (most.bit_length() - 1) if has_symbol(stmt.hi) else min(most, trips(stmt))


def length(stmt: For) -> int | None:
    """The most that hi - lo can be, or what it is where sizes are their hints; None for neither."""
    most = longest(stmt.lo, stmt.hi)
    if most is not None or not has_symbol(stmt.hi):
        return most
    hints = {n: constant(n.op.hint) for n in symbols(stmt.lo, stmt.hi)}  # type: ignore[attr-defined]
    lo, hi = (simplify(end, {}) for end in substitute((stmt.lo, stmt.hi), hints))
    return longest(lo, hi)


def divisors(count: int) -> list[int]:
    """The divisors of a number in ascending order."""
    small = [n for n in range(1, math.isqrt(count) + 1) if count % n == 0]
    return sorted({*small, *(count // n for n in small)})


def ranges_in(block: Block, ranges: Ranges | None = None) -> Ranges:
    """The range of every axis that a loop of the block binds."""
    found: Ranges = dict(ranges or {})
    for loop in loops_in(block):
        found[loop.axis] = axis_range(loop, found)
    return found


def stride_along(term: Node, variable: Node) -> int | None:
    """The stride of an address along an axis, in elements; None when it is not constant."""
    terms, _ = linear(term)
    step = terms.get(variable, 0)
    others = (a for a in terms if a is not variable)
    return None if any(variable in free_variables(a) for a in others) else step


def window(
    where: Node, axis: Node, lanes: int, ranges: Mapping[Node, Interval], type_: TensorType
) -> Interval | None:
    """How far from lane 0 lanes along an axis read that have no constant stride; else None.

    None too where one load does not have it all, or registers do not permute such elements.
    """
    wide = type_.dtype.compute.bytes in (4, 8) and type_.dtype is not boolean
    if not wide or isinstance(type_.span, Size) or stride_along(where, axis) is not None:
        return None
    found = spread(where, axis, lanes, ranges)
    return None if found is None or found[1] - found[0] >= lanes else found


def steps_by_size(address: Node, axis: Node) -> bool:
    """Whether the stride of an address along an axis is a size, where it is no literal."""
    parts = [parts_of(atom) for atom in linear(address)[0] if axis in free_variables(atom)]
    others = [f for p in parts for f in p if f is not axis]
    each = all(axis in p and len(p) > 1 for p in parts)
    return bool(parts) and each and not free_variables(*others)


def is_even(block: Block, axis: Node, ranges: Ranges) -> bool:
    """Whether every access of a block has a stride along an axis."""
    places = (address(*place, ranges) for place in accesses(block))
    return all(stride_along(p, axis) is not None or steps_by_size(p, axis) for p in places)


def strides(stmt: Stmt, axis: Node, ranges: Ranges) -> Iterator[tuple[Stmt | Node, int | None]]:
    """Every access of a statement, with its stride along an axis (None: not constant)."""
    for part in (stmt, *postorder(*stmt.terms())):
        if access(part) is not None:
            yield part, stride_of(part, axis, ranges)


def stride_of(part: Stmt | Node, axis: Node, ranges: Mapping[Node, Interval]) -> int | None:
    """The stride of a store or a load along an axis; None when it is not constant."""
    touched = access(part)
    assert touched is not None, "no access"
    return stride_along(address(*touched, ranges), axis)


def strip_width(parts: Iterable[Stmt | Node], along: Node, known: Divisors, ranges: Ranges) -> int:
    """The widest strip, in elements, that each load and store along the axis can take at once."""
    moving: list[tuple[Node, Node | None, int]] = []
    for part in parts:
        touched = access(part)
        if touched is None:
            continue
        where = address(*touched, ranges)
        if along in postorder(where):
            # a warp whose threads combine neighbours does whole sectors
            if getattr(part, "combines", False) or stride_along(where, along) != 1:
                return 1
            moving.append((where, mask_of(part), touched[0].type.dtype.bytes))
    width = WIDEST // min((size for *_, size in moving), default=WIDEST)
    while width > 1 and not all(_aligned(at, mask, along, width, known) for at, mask, _ in moving):
        width //= 2
    return width


def _aligned(where: Node, mask: Node | None, along: Node, width: int, known: Divisors) -> bool:
    """Whether a strip's access is aligned, and its mask uniform over the strip."""
    start = axis("strip")
    with_start = {**known, start: width}
    if divisor(substitute((where,), {along: start})[0], with_start) % width:
        return False
    if mask is None or along not in postorder(mask):
        return True
    at = (apply("add", start, constant(i)) for i in range(width))
    forms = (substitute((mask,), {along: n})[0] for n in at)
    return len({condition_of_all(form, with_start) for form in forms}) == 1


def term_cost(term: Node) -> float:
    """Cost of one evaluation of the term's own op, in vector instructions."""
    if isinstance(term.op, Apply):
        if is_index(term):
            return 0.0  # part of an address, or as cheap
        if term.op.function.name == "multiply" and term.type.dtype.is_float:
            return 0.5  # half of a fused multiply-add
        divides = term.op.function.name in ("floordiv", "floormod")
        shifts = divides and _is_power(value_of(term.args[1]))
        return 1.0 if shifts else term.op.function.cost
    return 1.0 if isinstance(term.op, Load) else 0.0


def _is_power(value: Any) -> bool:
    """Whether it is a whole power of two."""
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


def narrow(term: Node) -> Node:
    """The term without a widening cast: storing it takes the fewer bytes."""
    cast = isinstance(term.op, Apply) and term.op.function in CASTS.values()
    if cast and term.args[0].type.dtype.bytes < term.type.dtype.bytes:
        return narrow(term.args[0])
    return term


@dataclass(frozen=True)
class Contraction:
    """A sum of products over reduce axes, and how its axes take part.

    out[.., m, .., n] = epilogue(sum over `reduce` of left(.., m, k) * right(.., k, n))
    columns  n: the output is contiguous along it, `left` does not depend on it
    rows     m: `right` does not depend on it
    outer    free loops `right` depends on; `repeat` those it does not
    """

    rows: For
    columns: For
    outer: tuple[For, ...]
    repeat: tuple[For, ...]
    reduce: tuple[For, ...]
    update: Update
    left: Node
    right: Node
    stores: tuple[Store, ...]
    times: str = "multiply"  # of left and right; one of DOTS where they are words of several values
    joined: tuple[For, ...] = ()  # the loops over whose product `columns` runs, if two
    groups: Update | None = None  # what the sum of the inner loops is added to, in each outer one

    @property
    def ranges(self) -> Ranges:
        """The ranges of its axes."""
        return ranges_in((*self.outer, *self.repeat, self.rows, self.columns, *self.reduce))

    @property
    def lines(self) -> For:
        """The loop that column blocks are cut from."""
        return self.joined[0] if self.joined else self.columns

    @property
    def bytes(self) -> int:
        """Bytes of an accumulator."""
        return self.update.values[0].type.dtype.bytes

    @property
    def unit(self) -> Any:
        """Columns of a line, a number or a size."""
        return span(self.joined[1]) if self.joined else 1

    @property
    def turned(self) -> Contraction:
        """The contraction with rows and columns exchanged, so that lanes run over the rows."""
        outer, repeat = parted((*self.outer, *self.repeat), free_variables(self.left))
        turn = replace(self, rows=self.columns, columns=self.rows, left=self.right, right=self.left)
        times = DOTS.get(self.times, self.times)
        return replace(turn, outer=outer, repeat=repeat, joined=(), times=times)


def factors(term: Node) -> list[Node]:
    """The factors of a product; the term itself where there are many (a power by squaring)."""
    found, stack = list[Node](), [term]
    while stack and len(found) + len(stack) <= 16:
        node = stack.pop()
        if function_of(node) == "multiply":
            stack.extend(reversed(node.args))
        else:
            found.append(node)
    return [term] if stack else found


def chain(stmt: Stmt, role: str) -> tuple[list[For], Block]:
    """The perfectly nested loops of one role from `stmt` inwards, and the innermost body.

    None, and the statement, where that is no loop of the role.
    """
    if not isinstance(stmt, For) or stmt.role != role:
        return [], (stmt,)
    loops = loops_from(stmt, lambda f: f.role == role and not f.bind)
    return loops, loops[-1].body


Folded = tuple[list[For], list[For], list[Update], list[Store], For | None]


def folded(stmt: For) -> Folded | None:
    """The free loops, reduce loops, updates and stores of a nest of that form; None for others.

    Last the innermost free loop along which the stores are contiguous, if there is one.
    """
    free, body = chain(stmt, "free")
    head, *rest = body
    reduce, inner = chain(head, "reduce")
    stores = [s for s in rest if isinstance(s, Store)]
    updates = [s for s in inner if isinstance(s, Update)]
    all_ = len(stores) == len(rest) and len(updates) == len(inner)
    if not (free and reduce and stores and all_):
        return None
    ranges = ranges_in((stmt,))
    columns = (f for f in reversed(free) if stride_of(stores[0], f.axis, ranges) == 1)
    return free, reduce, updates, stores, next(columns, None)


def contraction(stmt: For) -> Contraction | None:
    """The contraction that a nest of free loops computes; None when it computes something else."""
    found = folded(stmt)
    if found is None or len(found[2]) != 1 or found[2][0].fold.monoid is not SUM:
        return None
    free, reduce, (update,), stores, columns = found
    if columns is not None and trips(columns) < 4:  # taps of a window, inside channels
        columns = max(reversed(free), key=trips)
    if columns is None or len(reduce[0].folds) != 1 or trips(columns) < 4:
        return None
    value = update.values[0]
    words = DOTS.get(function_of(value) or "")
    parts = list(value.args) if words else factors(value)
    right = [p for p in parts if columns.axis in free_variables(p)]
    left = [p for p in parts if columns.axis not in free_variables(p)]
    of_left, of_right = free_variables(*left), free_variables(*right)
    if not any(r.axis in of_left and r.axis in of_right for r in reduce):
        return None
    if any(isinstance(n.op, Acc) for n in postorder(*parts)):
        return None
    rows = [f for f in free if f is not columns and f.axis not in of_right and f.axis in of_left]
    if not rows:
        return None
    best = max(rows, key=lambda f: (trips(f), free.index(f)))
    around = parted((f for f in free if f is not best and f is not columns), of_right)
    sides = apply_all("multiply", left), apply_all("multiply", right)
    times = "multiply" if words is None else DOTS[words] if right[0] is parts[1] else words
    return Contraction(best, columns, *around, tuple(reduce), update, *sides, tuple(stores), times)


class Crossing(NamedTuple):
    """A transposing nest: its store is contiguous along one free loop, a load along another."""

    loops: list[For]
    along: For  # what it stores is contiguous along this one
    across: For  # and these loads along that one
    loads: list[Node]
    stores: tuple[Store, ...]


def crossing(stmt: For) -> Crossing | None:
    """The loops along which a transposing nest stores and loads; None for any other nest."""
    loops, body = chain(stmt, "free")
    stores = tuple(s for s in body if isinstance(s, Store))
    if len(stores) != len(body) or not stores or len(loops) < 2:
        return None
    ranges = ranges_in((stmt,))
    along = next((f for f in loops if stride_of(stores[0], f.axis, ranges) == 1), None)
    if along is None:
        return None
    found: dict[Node, For] = {}
    for term in nodes(stores):
        if isinstance(term.op, Load) and not term.op.masked:
            others = (f for f in loops if f is not along and stride_of(term, f.axis, ranges) == 1)
            other = next(others, None)
            if stride_of(term, along.axis, ranges) not in (0, 1) and other is not None:
                found[term] = other
    across = set(found.values())
    return Crossing(loops, along, across.pop(), list(found), stores) if len(across) == 1 else None


def parted(loops: Iterable[For], axes: Container[Node]) -> tuple[tuple[For, ...], tuple[For, ...]]:
    """The loops over some axes, and all others."""
    inside = {f: f.axis in axes for f in loops}
    return tuple(f for f in inside if inside[f]), tuple(f for f in inside if not inside[f])


def value_uses(block: Block, variable: Node) -> bool:
    """Whether a variable is used as a value, not only in indices of loads and stores."""
    memo: dict[Node, bool] = {}

    def parts(part: Stmt | Node) -> tuple[Node, ...]:
        terms = part.args if isinstance(part, Node) else part.terms()
        touched = access(part)
        return terms if touched is None else terms[len(touched[1]) :]

    def uses(node: Node) -> bool:
        return node is variable or any(memo[a] for a in parts(node))

    return any(bottom_up(t, memo, uses, parts) for s in walk(block) for t in parts(s))
