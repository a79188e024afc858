"""Peel the last, partial iteration of blocked loops, so that full blocks need no masks.

before  for b0 in 0..18 by 16:                      after   for b0 in 0..16 by 16:
            for a0 in b0..min(b0 + 16, 18):                     for a0 in b0..b0 + 16:
                y[a0] = ...                                         y[a0] = ...
                                                            for a0 in 16..18:
                                                                y[a0] = ...
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

from weft.core.node import Node, make, postorder, rebuild, substitute
from weft.scalar.affine import linear, slack
from weft.scalar.blocks import expand_loops, loads, substitute_block
from weft.scalar.divisors import Divisors, divisor, is_multiple
from weft.scalar.index import FALSE, TRUE, simplify
from weft.scalar.nest import Block, For, Load, Stmt, free_variables, walk
from weft.scalar.ops import Constant, apply, axis, constant, function_of, has_symbol, is_index
from weft.scalar.reach import axis_range, ranges_inside
from weft.scalar.sizes import Extent, Size, hint, size, size_of, smaller
from weft.scalar.symbols import linear_bounds
from weft.tile.analysis.access import Ranges
from weft.tile.moves import partial

MANY = 4  # blocks from which on it costs little to compute the last one as a whole
MOST = 16  # blocks of which one may go by parts, so that the others have no masks


def settled(node: Node) -> Node | None:
    """A masked load whose condition is a literal: the load, or the other value."""
    if not isinstance(node.op, Load) or not node.op.masked:
        return None
    *index, condition, other = node.args
    if condition is TRUE:
        return make(Load(node.op.buffer), *index)
    return other if condition is FALSE else None


def simplify_block(block: Block, ranges: Ranges) -> Block:
    """Simplify every term under the ranges of the loops around it."""
    memo: dict[Node, Node] = {}

    def change(term: Node) -> Node:
        if term not in memo:
            memo[term] = rebuild((simplify(term, ranges),), settled)[0]
        return memo[term]

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For):
            return stmt.map_terms(change)
        bounded = replace(stmt, lo=change(stmt.lo), hi=change(stmt.hi))
        body = simplify_block(stmt.body, ranges_inside(bounded, ranges))
        return replace(bounded, body=body)

    return tuple(map(one, block))


def peel(block: Block, ranges: Ranges) -> Block:
    """Split every blocked loop of literal length, but a grid's, into full blocks and a rest."""
    return expand_loops(block, lambda stmt: _pieces(stmt, ranges))


def _pieces(stmt: For, ranges: Ranges) -> Sequence[Stmt]:
    """What a loop becomes: the loop alone, where it is not split."""
    extent = simplify(apply("subtract", stmt.hi, stmt.lo), ranges)
    short = has_symbol(extent) and 1 < stmt.step >= linear_bounds(*linear(extent), ranges)[1]
    if short and _runs_once(stmt):
        body = partial.cut_body(stmt, lambda ends: stmt.hi)
        return peel(simplify_block(substitute_block(body, {stmt.axis: stmt.lo}), ranges), ranges)
    clipped = _clipped(stmt, stmt.lo, {}, ranges) if has_symbol(extent) else None
    if clipped is not None:
        return (clipped,)
    if stmt.step > 1 and stmt.bind != "grid" and _ragged(stmt, extent):
        return _split_at_size(partial.with_blocks(stmt) if short else stmt, extent, ranges)
    # vectors side by side stay so: each has its own count of lanes
    vectors = stmt.bind == "register" and all(isinstance(s, For) and s.lanes for s in stmt.body)
    if stmt.step > 1 and stmt.bind != "grid" and isinstance(extent.op, Constant) and not vectors:
        return _split(stmt, int(extent.op.value), ranges)
    inner = ranges_inside(stmt, ranges)
    even = stmt.step > 1 and is_multiple(extent, stmt.step)
    blocks = partial.starting(stmt.body, stmt.axis)
    even = even or (stmt.step == 1 and bool(blocks))  # a block of one is full
    body = simplify_block(partial.full_body(stmt), inner) if even else stmt.body
    return (replace(stmt, body=peel(body, inner)),)


def _ragged(stmt: For, extent: Node) -> bool:
    """Whether what is unrolled may end within a block: at a size, or at another axis."""
    even, below = is_multiple(extent, stmt.step), partial.loops_below(stmt)
    unrolls = any(s.bind == "register" or (has_symbol(extent) and s.lanes) for s in below)
    return unrolls and not (even or isinstance(extent.op, Constant))


def _runs_once(stmt: For) -> bool:
    """Of a loop that runs once at most: whether its body does nothing where it runs not at all.

    Not if it unrolls: copies need a literal length, which only blocks have.
    """
    below = partial.loops_below(stmt)

    def empty(block: Block) -> bool:
        return all(isinstance(s, For) and (s in below or empty(s.body)) for s in block)

    unrolls = any(s.bind == "register" for s in below)
    plain = stmt.bind == "serial" and not stmt.folds and not unrolls
    return plain and empty(stmt.body)


def _clipped(stmt: For, base: Node, known: Divisors, ranges: Ranges) -> For | None:
    """Blocks of a sum, each up to the end of the loop; of these the innermost alone are split.

    So there is one body for all, and a short sum passes through few loops. None for other loops.
    Where it starts is the `base`: what is `known` of axes divides their distance from that.
    """
    known = {**known, stmt.axis: stmt.step}
    starts = partial.starting(stmt.body, stmt.axis)
    sums = all(s.role == "reduce" and stmt.step % s.step == 0 for s in starts)
    if partial.unrolls(stmt) or not (starts and sums) or starts != partial.loops_below(stmt):
        return None
    end, inner = _whole(stmt.hi, stmt.step, known), ranges_inside(stmt, ranges)
    body = partial.cut_body(stmt, lambda ends: apply("minimum", ends, end))
    blocks = {s: _split_sum(s, base, known, inner) for s in partial.starting(body, stmt.axis)}
    body = expand_loops(body, lambda s: blocks[s] if s in blocks else _pieces(s, inner))
    return replace(stmt, body=body) if all(blocks.values()) else None


def _split_sum(stmt: For, base: Node, known: Divisors, ranges: Ranges) -> Sequence[Stmt]:
    """A block as full blocks, then as single vectors, of which the last is masked; or clipped.

    It ends at a multiple of these, or where the whole sum does. Nothing where it can be neither.
    """
    if not partial.unrolls(stmt):
        block = _clipped(stmt, base, known, ranges)
        return () if block is None else (block,)
    unit, lo, parts = partial.unit_of(stmt), stmt.lo, list[For]()
    whole = _whole(stmt.hi, stmt.step, known)
    length = apply("subtract", whole, base)
    for width in dict.fromkeys((stmt.step, unit, 1)):
        turns = apply("floordiv", length, constant(width))
        full = apply("add", base, apply("multiply", turns, constant(width)))
        hi = simplify(substitute((stmt.hi,), {whole: full})[0], ranges)
        part = replace(stmt, lo=lo, hi=hi, step=max(width, unit), folds=())
        left = simplify(apply("floormod", length, constant(unit)), ranges)
        fits = width >= unit
        body = partial.full_body(stmt, width) if fits else partial.last_body(stmt, unit, left)
        parts.append(_peeled(part, body, bool(parts), ranges, width))
        lo = simplify(full, ranges)  # beyond the end of all blocks but the last
    return declared(stmt, parts)


def _whole(end: Node, step: int, known: Divisors) -> Node:
    """Where the whole sum ends, of the least of that and of ends of blocks, which are full."""
    if function_of(end) != "minimum":
        return end
    loose = [n for n in end.args if divisor(n, known) % step or not free_variables(n) & {*known}]
    return _whole(loose[0], step, known) if len(loose) == 1 else end


def _split(stmt: For, extent: int, ranges: Ranges) -> Sequence[Stmt]:
    whole = extent // stmt.step * stmt.step
    end = simplify(apply("add", stmt.lo, constant(whole)), ranges)
    parts: list[Stmt] = []
    if whole:
        full = replace(stmt, hi=end, folds=())
        parts.append(_peeled(full, partial.full_body(stmt), False, ranges))
    if whole < extent:
        rest = peel(simplify_block(substitute_block(stmt.body, {stmt.axis: end}), ranges), ranges)
        # unrolled copies differ: these stay a loop of one iteration
        one = replace(stmt, lo=end, body=rest, folds=())
        parts += [one] if stmt.bind == "register" else rest
    return declared(stmt, parts, bool(whole))


def _split_at_size(stmt: For, extent: Node, ranges: Ranges) -> Sequence[Stmt]:
    """Full blocks, then the rest in smaller ones: a half, a quarter, ... of what is unrolled (only
    every second of these where nothing is added up), or vectors of which the last is masked.

    Or full blocks alone, of which the last repeats a row.
    """
    if linear_bounds(*linear(extent), ranges)[0] < 0:
        extent = apply("maximum", extent, constant(0))
    unit, widths, lo, end = partial.unit_of(stmt), [stmt.step], stmt.lo, simplify(stmt.hi, ranges)
    least = hint(_outermost(stmt)) / stmt.step
    if least >= MANY and partial.repeats(stmt):
        return declared(stmt, [_peeled(stmt, partial.repeated(stmt, end), False, ranges)])
    if least >= 1 and partial.overlaps(stmt):
        return _overlapped(stmt, extent, unit, ranges)
    adds = any(isinstance(s, For) and s.role == "reduce" for s in walk(stmt.body))
    if unit == 1 and stmt.role == "free":
        widths += parts_of(stmt.step) if adds else parts_of(stmt.step)[::-1][::2][::-1]
    elif unit < stmt.step and not (adds and stmt.role == "free"):
        widths.append(unit)
    inside = _inside(stmt, ranges) if unit > 1 else None
    blocks = [(width, extent if inside is None else inside) for width in widths]
    blocks += [] if inside is None or unit < widths[-1] else [(widths[-1], extent)]
    parts: list[For] = []
    for width, length in blocks:
        turns = apply("floordiv", length, constant(width))
        hi = apply("add", stmt.lo, apply("multiply", turns, constant(width)))
        hi = simplify(hi, ranges)
        if hi is not lo:
            part = replace(stmt, lo=lo, hi=hi, step=width, folds=())
            parts.append(_peeled(part, partial.full_body(stmt, width), bool(parts), ranges, width))
        lo = hi if length is extent else simplify(apply("maximum", hi, stmt.lo), ranges)
    if lo is not end and widths[-1] > 1:
        left = simplify(apply("floormod", extent, constant(widths[-1])), ranges)
        if unit < widths[-1]:  # of which the last may be less than one
            left = apply("minimum", apply("subtract", end, stmt.axis), constant(unit))
        part = replace(stmt, lo=lo, hi=end, step=unit, folds=())
        parts.append(_peeled(part, partial.last_body(stmt, unit, left), True, ranges))
    return declared(stmt, parts)


def _outermost(stmt: For) -> Extent:
    """How many iterations there are where axes around the loop are 0, and their blocks whole.

    Of a loop whose ends are loaded there may be none.
    """
    ends = stmt.hi.args if function_of(stmt.hi) == "minimum" else (stmt.hi,)
    lengths = [apply("subtract", end, stmt.lo) for end in ends]
    cut = [n for n in lengths if not is_multiple(n, stmt.step)] or lengths
    least = reduce(lambda a, b: apply("minimum", a, b), cut)
    if loads(least):
        return 0
    return size(substitute((least,), dict.fromkeys(free_variables(least), constant(0)))[0])


def _overlapped(stmt: For, extent: Node, unit: int, ranges: Ranges) -> Sequence[Stmt]:
    """Full blocks, of which the last starts where it ends with the loop. A loop that is shorter
    than a block goes by single iterations, or by a masked vector, and unrolls nothing else.
    """
    short = apply("lt", extent, constant(stmt.step))
    turn = simplify(apply("where", short, stmt.lo, stmt.hi), ranges)
    left = apply("minimum", apply("subtract", stmt.hi, stmt.axis), constant(unit))
    part = replace(stmt, lo=turn, step=unit)
    return [
        _peeled(replace(stmt, hi=turn), partial.overlapping(stmt), False, ranges),
        _peeled(part, partial.rolled(partial.last_body(stmt, unit, left)), True, ranges),
    ]


def _inside(stmt: For, ranges: Ranges) -> Node | None:
    """Up to where the comparisons in blocks hold whatever other axes are.

    None if to the end, and where so few blocks hold them all that the rest would take longer.
    """
    if stmt.lo is not constant(0) or free_variables(stmt.hi) or loads(stmt.hi):
        return None
    axes, known = [stmt.axis], {**ranges, stmt.axis: axis_range(stmt, ranges)}
    for s in walk(stmt.body):
        if isinstance(s, For):
            known[s.axis] = axis_range(s, known)
            axes += [s.axis] if s.lo in axes else []
    whole = size(stmt.hi)
    found = {c for s in walk(stmt.body) for a in axes for c, up in cuts(s, a, whole, known) if up}
    ends = [c for c in found - {whole} if isinstance(c, Size) and 0 <= hint(c) <= hint(whole)]
    end = reduce(smaller, sorted(ends, key=str), whole)
    blocks, inner = hint(whole) // stmt.step, hint(end) // stmt.step
    return constant(end) if ends and (blocks - inner) * MOST <= blocks else None


def cuts(stmt: Stmt, axis: Node, extent: Extent, ranges: Ranges) -> Iterator[tuple[Extent, bool]]:
    """From where on, or (True) up to where, comparisons hold whatever other axes are."""
    for term in postorder(*stmt.terms()):
        if (form := slack(term)) is not None:
            terms, offset = form
            step = terms.get(axis, 0)
            fixed = {a: k for a, k in terms.items() if is_index(a) and not free_variables(a)}
            others = {a: k for a, k in terms.items() if a is not axis and a not in fixed}
            least, most = linear_bounds(others, offset, ranges)
            if step and most - least < abs(step) * hint(extent) / 2:  # else most stays undecided
                low = size_of((fixed, int(least)))
                yield (-(low // step), False) if step > 0 else (low // -step + 1, True)


def declared(stmt: For, parts: Sequence[Stmt], whole: bool = True) -> Sequence[Stmt]:
    """The parts of a loop inside of what declares its folds.

    That is a part that is whole blocks alone, or a loop of one iteration around all.
    """
    one = parts[0] if len(parts) == 1 and whole else None
    if stmt.folds and isinstance(one, For) and not one.folds:
        return [replace(one, folds=stmt.folds)]
    once = axis(f"s_{stmt.label}"), constant(0), constant(1)
    own = For(*once, tuple(parts), 1, stmt.role, "serial", stmt.folds)
    return [own] if stmt.folds else parts


def parts_of(width: int) -> list[int]:
    """Widths that divide all before them, down to 1: 4, 2, 1 of 8, and 3, 1 of 6."""
    found: list[int] = []
    while width > 1:
        width = max(n for n in range(1, width) if width % n == 0)
        found.append(width)
    return found


def _peeled(part: For, body: Block, rest: bool, ranges: Ranges, beyond: int = 1) -> For:
    """The part, whose last iteration is `beyond` before its end."""
    last = replace(part, hi=apply("subtract", part.hi, constant(beyond - 1)))
    inner = ranges_inside(last, ranges)
    part = replace(part, body=peel(simplify_block(body, inner), inner))
    return replace(part, bind="serial", grain=None) if rest and part.bind == "parallel" else part
