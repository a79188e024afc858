"""Packs the right operand of a contraction in panels: a tile's columns of each row side by side.

before  ... x[a0, a2] * w[a2, a1]       panel   local panel0: f32[64,32]
                                                for k0 in 0..64: for n0 in b0..b0 + 32:
                                                    panel0[k0, n0 - b0] = w[k0, n0]
                                                ... x[a0, a2] * panel0[a2, a1 - b0]

panels, by a kernel of its own          for b0 in 0..16: for a2 in 0..64: for j0 in 0..32:
                                            w_panels[b0, a2, j0] = w[a2, b0 * 32 + j0]
                                        ... x[a0, a2] * w_panels[a1 // 32, a2, a1 % 32]

in_panels(c, 32)                        # how a tile that starts at a column reads the latter
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from weft.core.node import Node, make, postorder, rebuild, substitute
from weft.core.text.graph import fresh
from weft.core.types import TensorType
from weft.scalar.affine import function_of, has_symbol
from weft.scalar.blocks import loads, loops_from, nodes, substitute_block
from weft.scalar.index import simplify
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Local, Store, walk
from weft.scalar.ops import apply, constant, floordiv, floormod, minimum, multiply, value_of
from weft.scalar.sizes import Size
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, Ranges, length, ranges_in, span, stride_of, trips
from weft.tile.moves.loops import Labels, around, guarded, nested, renamed, upto
from weft.tile.moves.peel import cuts, simplify_block

Read = Callable[[Node], Node]  # what a tile that starts at a column reads


def tile_width(c: Contraction, target: Machine) -> int:
    """The columns of a register tile."""
    lanes = target.lanes(c.bytes)
    columns = lanes * target.register_tile[1] if has_symbol(c.columns.hi) else trips(c.columns)
    return lanes * min(target.register_tile[1], -(-columns // lanes))


def place_of(column: Node, width: int) -> tuple[Node, Node]:
    """The panel of a column, and its place there."""
    return apply(floordiv, column, constant(width)), apply(floormod, column, constant(width))


def in_panels(c: Contraction, width: int) -> Read | None:
    """How a tile reads the right operand at a column, in panels of that width."""
    column = c.columns.axis
    quotient, inside = place_of(column, width)
    *others, last = c.right.args or (c.right,)
    if not isinstance(c.right.op, Load) or last is not inside or quotient not in others:
        return None

    def read(at: Node) -> Node:
        panel = apply(floordiv, at, constant(width))
        # the rest of columns that a size ends is taken in parts of a block: tile/moves/peel.py
        start = apply(multiply, panel, constant(width)) if has_symbol(c.columns.hi) else at
        place = {quotient: panel, inside: apply("subtract", column, start)}
        return make(c.right.op, *(place.get(a, a) for a in c.right.args))

    return read


def column_at(c: Contraction, line: Node) -> Node:
    """The first column of a line."""
    return apply(multiply, line, constant(c.unit)) if c.joined else line


def window(c: Contraction, lines: For) -> For | None:
    """The reduce loop that moves over the right side as the lines do: a window's."""
    for r in c.reduce:
        still = substitute((c.right,), {r.axis: constant(0)})
        moved = substitute(still, {lines.axis: apply("add", lines.axis, r.axis)})[0]
        if r.lo is constant(0) and r.extent and simplify(moved, {}) is simplify(c.right, {}):
            return r
    return None


def taps(c: Contraction, lines: For) -> int:
    slides = window(c, lines)
    return 1 if slides is None else trips(slides)


def panel(
    c: Contraction, first: Node, size: int, labels: Labels, pads: bool = False
) -> tuple[Block, Node]:
    """Pack right(k, first .. first + size) into a local buffer: the statements; how to read it.

    Lines that a window shares are packed once: it reads from line + k. Where it `pads`, elements
    beyond the last line count as 0.
    """
    reads = set(postorder(c.right))
    slides = window(c, c.lines)
    more = 0 if slides is None else trips(slides) - 1
    loops = [r for r in c.reduce if r.axis in reads and r is not slides]
    fresh = {r.axis: labels.axis("k") for r in loops}
    line = labels.axis("n")
    last = apply("add", c.lines.hi, constant(more)) if more else c.lines.hi
    end = apply("add", first, constant(size + more)) if pads else upto(first, size + more, last)
    spans = [replace(c.lines, axis=line, lo=first, hi=end)]
    place = {**fresh, c.lines.axis: line}
    inside = apply("subtract", line, first)
    column = apply("subtract", c.columns.axis, column_at(c, first))
    if slides is not None:
        place[slides.axis] = constant(0)
        column = apply("add", column, apply(multiply, slides.axis, constant(c.unit)))
    if c.joined:
        spans.append(replace(c.joined[1], axis=labels.axis("n")))
        place[c.joined[1].axis] = spans[1].axis
        inside = apply("add", apply(multiply, inside, constant(c.unit)), spans[1].axis)
    shape = (*map(span, loops), (size + more) * c.unit)
    packed = labels.buffer("panel", c.right.type.dtype, shape)
    index = (*(fresh[r.axis] for r in loops), inside)
    # left without binds: the passes after this one choose how to read the right side best
    (value,) = substitute((c.right,), place)
    value = guarded(value, line, apply("lt", line, last)) if pads else value
    store = Store(packed, index, simplify(value, {}))
    over = [*(replace(r, axis=fresh[r.axis]) for r in loops), *spans]
    fields = {"step": 1, "role": "free", "bind": "", "folds": ()}
    fill = _even(nested(over, (store,), **fields), labels)
    return (Local(packed), *fill), make(Load(packed), *(r.axis for r in loops), column)


def _even(fill: Block, labels: Labels) -> Block:
    """The nest over groups, and parts of groups, where its value asks for a place in a group.

    In each part memory is even along rows, so that registers transpose what they read.
    """
    (nest,) = fill
    assert isinstance(nest, For)
    store = loops_from(nest)[-1].body
    units = [int(value_of(n.args[1]) or 0) for n in nodes(store) if _is_place(n, nest)]
    unit = max(units, default=0)
    if unit < 2 or nest.extent is None or nest.extent % unit or nest.lo is not constant(0):
        return fill
    rest = labels.axis("k")
    place = apply("add", apply(multiply, nest.axis, constant(unit)), rest)
    groups = replace(nest, hi=constant(nest.extent // unit))
    ranges: Ranges = {groups.axis: (0, nest.extent // unit - 1), rest: (0, unit - 1)}
    body = simplify_block(substitute_block(nest.body, {nest.axis: place}), ranges)
    inner = ranges_in(body, ranges)
    found = {c for s in walk(body) for c, _ in cuts(s, rest, unit, inner)}
    ends = sorted({0, unit, *(c for c in found if isinstance(c, int) and 0 < c < unit)})
    parts: list[For] = []
    for start, end in pairwise(ends):
        within: Ranges = {**ranges, rest: (0, end - start - 1)}
        moved = substitute_block(body, {rest: apply("add", rest, constant(start))})
        part = simplify_block(moved, within)
        parts.append(replace(nest, axis=rest, hi=constant(end - start), body=part))
    return (replace(groups, body=tuple(s for p in parts for s in renamed((p,), labels))),)


def _is_place(term: Node, loop: For) -> bool:
    return function_of(term) == "floormod" and term.args[0] is loop.axis


def panels(c: Contraction, width: int, labels: Labels, names: set[str]) -> tuple[Kernel, Node]:
    """Pack c.right in panels by a kernel of its own: that kernel; how to read it.

    `names`: those of other buffers, and then its own as well.
    """
    columns, column = span(c.columns), c.columns.axis
    within = set(postorder(c.right))
    parts = dict(_part(f, c.right, labels) for f in c.outer if f.axis in within)
    outer, inner = list(parts.values()), [r for r in c.reduce if r.axis in within]
    (right,) = substitute((c.right,), {term: f.axis for term, f in parts.items()})
    count = (columns + width - 1) // width
    shape = (*map(span, outer), count, *map(span, inner), width)
    inputs = loads(c.right)
    name = fresh(f"{inputs[0].name}_panels", names)
    packed = Buffer(name, TensorType(c.right.type.dtype, shape))
    each, n, whole = labels.axis("b"), labels.axis("j"), constant(columns // width)

    def fill(panel: Node, partial: bool) -> For:
        """The loops that fill a panel; beyond the last column that one again."""
        at = apply("add", apply(multiply, panel, constant(width)), n)
        at = apply(minimum, at, constant(columns - 1)) if partial else at
        value = substitute((right,), {column: at})[0]
        index = (*(f.axis for f in outer), panel, *(r.axis for r in inner), n)
        loop = For(n, constant(0), constant(width), (Store(packed, index, value),))
        return around(inner, loop, role="free", folds=())

    along = {stride_of(n, column, {}) for n in postorder(right) if isinstance(n.op, Load)}
    # squares of registers read rows of columns anywhere: one nest for all panels, the last too
    begin = constant(0) if 1 not in along and isinstance(columns, Size) else whole
    nests = [For(each, constant(0), begin, (fill(each, False),))] if value_of(begin) != 0 else []
    if isinstance(columns, Size):  # one more, or none
        nests.append(For(each, begin, constant(count), (fill(each, True),)))
    elif columns % width:
        nests.append(fill(whole, True))
    body = tuple(around(outer, nest) for nest in nests)
    quotient, inside = place_of(column, width)
    read = make(Load(packed), *parts, quotient, *(r.axis for r in inner), inside)
    return Kernel(f"pack_{name}", inputs, (packed,), body), read


def longest(c: Contraction, around: Sequence[For]) -> tuple[Contraction, tuple[For, ...]]:
    """For a kernel that packs c.right: the loops around, each as long as it ever gets.

    For what is then read outside of a buffer, and not used, its first or last element stands.
    """

    def longer(f: For) -> For:
        known = f.extent is not None or f.lo is not constant(0) or has_symbol(f.hi)
        return f if known or not (most := length(f)) else replace(f, hi=constant(most))

    def change(node: Node) -> Node | None:
        if not isinstance(node.op, Load):
            return None
        shape = node.op.buffer.type.shape
        ends = zip(node.args, (constant(n - 1) for n in shape), strict=False)
        index = (apply("maximum", constant(0), apply(minimum, *at)) for at in ends)
        return make(node.op, *(simplify(i, ranges) for i in index), *node.args[len(shape) :])

    if (loops := tuple(map(longer, around))) == tuple(around):
        return c, loops
    ranges = c.ranges | ranges_in(nested(loops, ()))
    return replace(c, right=rebuild((c.right,), change)[0]), loops


def _part(loop: For, right: Node, labels: Labels) -> tuple[Node, For]:
    """What of a loop's axis the term depends on, a quotient or all of it; a loop over that."""
    users = [n for n in dict.fromkeys(postorder(right)) if loop.axis in n.args]
    by = int(value_of(users[0].args[1]) or 0) if function_of(users[0]) == "floordiv" else 0
    if len(users) > 1 or by < 1 or loop.extent is None or trips(loop) % by:
        return loop.axis, loop
    return users[0], For(labels.axis("g"), constant(0), constant(trips(loop) // by), ())
