"""block_contraction: computes a contraction from packed panels, in a register tile of accumulators.

before  for a0 in 0..128:  # free                   after  for b0 in 0..512 by 32:  # free
            for a1 in 0..512:  # free                          local panel: f32[64,32]
                for a2 in 0..64:  # reduce acc0                for a3 in 0..64:  # free
                    acc0 <- add(acc0, x*w)                         ... panel[a3, a1 - b0] = w
                y[a0, a1] = acc0                               for b1 in 0..128 by 8:  # free
                                                                   for a0 in b1..b1 + 8:  # register
                                                                       ... a1 by vector, a2 unroll

Where it is cheaper, columns run over two loops joined; a panel then holds whole lines, each once
even where a convolution's window slides over them. Where columns of one loop end in part of a
vector, its panel has zeros beyond and whole vectors are multiplied, of which those are stored.
"""

from dataclasses import dataclass, replace
from functools import partial

from weft.core.node import Node, postorder
from weft.scalar.blocks import map_each, map_outermost, substitute_block
from weft.scalar.choices import Choices
from weft.scalar.index import simplify
from weft.scalar.nest import Acc, Block, For, Kernel, Load, Stmt, Update, free_variables
from weft.scalar.ops import SAFE, Apply, apply, constant, has_symbol
from weft.scalar.resize import hinted, sizes_of
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, contraction, span, strides, trips
from weft.tile.moves.join import joined_columns, nested_and_joined
from weft.tile.moves.loops import Labels, blocked, nested, tiled, upto, vectors, within
from weft.tile.moves.panels import Read, column_at, in_panels, panel, tile_width
from weft.tile.moves.sum_chunks import in_chunks
from weft.tile.price.cost import in_tiles
from weft.tile.price.lines import PEELED, is_even, most_lines, over_lines, turned_rows
from weft.tile.price.products import FEW, UNROLLED, chunk, is_chunked, pays, tile_rows


def block_contraction(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Apply the schedule to every contraction of the kernel that is large enough to gain."""
    labels = Labels(kernel.body)

    def one(stmt: For) -> For | None:
        found = None if stmt.bind else contraction(stmt) or in_tiles(stmt, target)
        if found is None or not pays(found) or any(span(r) is None for r in found.reduce):
            return None
        return _schedule(found, target, labels, choices, stmt in kernel.body)

    return replace(kernel, body=map_outermost(kernel.body, one))


def _schedule(c: Contraction, target: Machine, labels: Labels, choices: Choices, top: bool) -> For:
    """The tiled contraction, parallel over the cores where no loop is around it."""
    lanes, turned = target.lanes(c.bytes), turned_rows(c, target)
    c, size = _lines(c, turned, target, labels)
    rows = tile_rows(c, target, choices)
    width = tile_width(c, target)
    packed = in_panels(c, width)
    if not (packed or c.joined):
        wider = (n for n in (2 * size, 4 * size, 8 * size) if n < 2 * trips(c.columns))
        size = choices.pick("panel", (size, *wider), size.__rsub__)
    crossed = None if packed else in_panels(c.turned, turned)
    if crossed and not c.joined:  # both sides' panels fit
        deep = trips(*c.reduce) * c.right.type.dtype.bytes
        size = min(trips(c.columns), max(lanes, target.l2 // 2 // deep))
    outer = any(trips(f) > 1 for f in c.outer) and trips(c.outer[0]) >= target.cores
    enough = not top or outer or is_even(trips(c.lines), size, target)
    shared = None if enough else _split_rows(c, turned if crossed else 1, target, labels)
    if shared is not None:
        end = upto(shared.axis, shared.step, shared.hi)
        c = replace(c, rows=replace(c.rows, lo=shared.axis, hi=end))
    outside = (shared, *c.outer) if shared else c.outer
    sides = _Sides(packed, crossed, target, labels)
    whole = packed or crossed or c.joined or c.groups or not outside
    parts = [c] if whole else _parts(c, size)
    heights = [rows, *(tile_rows(part, target, choices) for part in parts[1:])]
    nests = tuple(sides.blocks(part, size, n) for part, n in zip(parts, heights, strict=True))
    return nested(outside, nests, bind="serial")[0] if outside else nests[0]  # type: ignore[return-value]


def _lines(c: Contraction, turned: int, target: Machine, labels: Labels) -> tuple[Contraction, int]:
    """Columns over one loop or two; and a block's lines.

    Where the rows' panels are there, each block reads all of these: as many lines as a cache holds.
    """
    crossed = in_panels(c.turned, turned) and not in_panels(c, tile_width(c, target))
    joint = joined_columns(c, labels) if crossed else None
    return (joint, most_lines(joint, target)) if joint else over_lines(c, target, labels)


def _parts(c: Contraction, size: int) -> list[Contraction]:
    """The columns in whole blocks, then the rest, which another tile may suit better."""
    whole, left = divmod(trips(c.columns), size)
    if not whole or not left or has_symbol(c.columns.hi):
        return [c]
    start = simplify(apply("add", c.columns.lo, constant(whole * size)), {})
    fold, other = c.update.fold, c.update.fold.suffixed("rest")
    reduce = tuple(replace(r, folds=tuple(other for _ in r.folds)) for r in c.reduce)
    stores = substitute_block(c.stores, dict(zip(fold.accs, other.accs, strict=True)))
    rest = replace(c, update=replace(c.update, fold=other), reduce=reduce, stores=stores)
    ends = replace(c.columns, hi=start), replace(c.columns, lo=start)
    return [replace(part, columns=columns) for part, columns in zip((c, rest), ends, strict=True)]


@dataclass(frozen=True)
class _Sides:
    """How tiles read the sides: from panels that are there, or that each block packs."""

    packed: Read | None
    crossed: Read | None
    target: Machine
    labels: Labels

    def blocks(self, c: Contraction, size: int, rows: int) -> For:
        """Blocks of so many lines of columns, in register tiles of so many rows."""
        labels, lanes, width = self.labels, self.target.lanes(c.bytes), tile_width(c, self.target)
        tile = _Tile(rows, width, lanes, chunked=is_chunked(c, self.target))
        packs = not self.packed and _packs(c, rows, width)
        pads = packs and not self.crossed and _is_padded(c, size, lanes)
        size = -(-trips(c.columns) // lanes) * lanes if pads else size
        stores = within(c.stores, c.columns) if pads else c.stores

        def block(first: Node, last: Node) -> Block:
            at = column_at(c, first)
            whole, cut = apply("add", at, constant(size)), upto(at, size * c.unit, c.columns.hi)
            before, right = (), self.packed(at) if self.packed else c.right
            if packs:
                before, right = panel(c, first, size, labels, pads)
            shared, groups = _shared(c, first, size, labels)
            before = (*before, *shared)
            columns = replace(c.columns, lo=at, hi=whole if pads else cut)
            part = replace(c, columns=columns, right=right, stores=stores, groups=groups)
            if self.crossed is not None:
                return (*before, _turned(part, self.crossed, self.target, labels))
            return (*before, *_rows(part, tile, labels))

        return blocked(c.lines, labels.axis("b"), size, block)


def _packs(c: Contraction, rows: int, width: int) -> bool:
    """Whether tiles read the right side faster from a panel than where it is."""
    repeats = trips(c.rows) > rows or any(trips(f) > 1 for f in c.repeat)
    plain = isinstance(c.right.op, Load) and not c.right.op.masked
    read = Update(c.update.fold, (c.right,))
    along = [step for _, step in strides(read, c.columns.axis, c.ranges)]
    inward = partial(strides, axis=c.reduce[-1].axis, ranges=c.ranges)
    across = [step or width + 1 for _, step in hinted(inward, sizes_of(read).values())(read)]
    close = max(across, default=0) <= width  # as in a panel
    apart = (repeats and not close) or any(step not in (0, 1) for step in along)
    return apart or bool(c.joined) or not plain


def _shared(c: Contraction, first: Node, size: int, labels: Labels) -> tuple[Block, Update | None]:
    """Panels of what groups share of their columns, as the scales of weights are."""
    if c.groups is None:
        return (), None
    column, fills, read = c.columns.axis, list[Stmt](), dict[Node, Node]()
    stack = [*c.groups.values]
    while stack:
        term = stack.pop()
        if column not in free_variables(term):
            continue
        if not isinstance(term.op, Load) and any(isinstance(n.op, Acc) for n in postorder(term)):
            stack += term.args
        elif term not in read:
            side = replace(c, right=term, reduce=c.reduce[:1])
            fill, read[term] = panel(side, first, size, labels)
            fills += fill
    return tuple(fills), substitute_block((c.groups,), read)[0]  # type: ignore[return-value]


def _is_padded(c: Contraction, size: int, lanes: int) -> bool:
    """Whether a block computes columns beyond the last, so that all its vectors are whole.

    A load of some lanes holds a mask in a register, and is slow where it crosses a cache line.
    """
    if c.joined or c.groups or has_symbol(c.columns.hi) or trips(c.columns) > size:
        return False
    terms = postorder(c.right, *(s.value for s in c.stores))
    checks = any(isinstance(n.op, Apply) and n.op.function in SAFE for n in terms)
    return trips(c.columns) % lanes > 0 and not checks  # which would see those columns too


def _split_rows(c: Contraction, unit: int, target: Machine, labels: Labels) -> For | None:
    """A parallel loop over whole units of rows, where column blocks are too few for the cores."""
    part = -(-trips(c.rows) // (target.cores * unit)) * unit
    if trips(c.rows) < 2 * max(FEW, unit) or trips(c.rows) % part:  # a rest would run by itself
        return None
    return For(labels.axis("p"), c.rows.lo, c.rows.hi, (), part, "free", "serial")


@dataclass(frozen=True)
class _Tile:
    """A register tile: so many rows by so many columns, in vectors of so many lanes.

    It adds up all terms at once, or each of their chunks. Where it is `fenced`, gcc does not unroll
    short loops whole, to keep what it reads.
    """

    rows: int
    width: int
    lanes: int
    chunked: bool
    fenced: bool = False


def _rows(c: Contraction, tile: _Tile, labels: Labels) -> Block:
    """Register tiles down the rows: accumulators for them, the reduction innermost."""
    update = replace(c.update, values=(apply(c.times, c.left, c.right),))

    def bound(loop: For) -> For:
        even = loop.body == (update,) and trips(loop) % UNROLLED == 0
        short = tile.fenced and isinstance(loop.body[0], Update) and trips(loop) <= PEELED
        return replace(loop, bind="fenced" if short else "unroll" if even else "serial")

    # over a packed panel the loops often are one even loop
    reduce = c.reduce[1:] if c.groups else c.reduce
    terms = map_each((nested_and_joined(reduce, (update,), labels),), For, bound)[0]
    if c.groups:
        terms = replace(c.reduce[0], body=(terms,))
    assert isinstance(terms, For)
    one = not has_symbol(constant(c.unit)) and trips(c.columns) <= tile.width

    def in_registers(rows: For, columns: For, body: Block = (terms, *c.stores)) -> Block:
        strip = vectors(columns, columns.lo, columns.hi, tile.lanes, labels, body)
        return (replace(rows, body=(strip,), bind="register"),)

    if tile.chunked:
        size, shape = chunk(c, terms, tile.width), (tile.rows, tile.width)
        nest = in_chunks(c, terms, size, shape, labels, in_registers)
        return nested(c.repeat, nest, bind="serial")
    steps = [(0, tile.rows)] if one else [(0, tile.rows), (1, tile.width)]
    nest = tiled((c.rows, c.columns), steps, labels, in_registers)
    return nested(c.repeat, nest, bind="serial")


def _turned(c: Contraction, read: Read, target: Machine, labels: Labels) -> For:
    """Register tiles of whole vectors of rows, by as many columns as registers hold.

    One row of a panel serves all of them, so that panels come from memory slowly. Short loops are
    fenced: gcc unrolls them whole, and to keep what a window reads again it spills accumulators.
    """
    width, lanes = turned_rows(c, target), target.lanes(c.bytes)

    def tiles(start: Node, stop: Node) -> Block:
        columns = replace(c.rows, lo=start, hi=stop)
        turn = replace(c.turned, columns=columns, right=read(start), repeat=c.repeat)
        rows, chunked = tile_rows(turn, target), is_chunked(turn, target)
        return _rows(turn, _Tile(rows, width, lanes, chunked, fenced=width > lanes), labels)

    return blocked(c.rows, labels.axis("b"), width, tiles)
