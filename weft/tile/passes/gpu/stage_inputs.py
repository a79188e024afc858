"""stage_inputs: stages operands that a block reads more than once in shared memory.

before  for k0 in ..: # reduce serial        after  for k0 in ..: # reduce serial
            for a2 in k0..k0 + 16: # reduce             local x_s0: f32[64,16] in shared
                acc0 <- add(acc0, x[a0, a2] * ..)       for m0 in b0..b0 + 64: # free thread
                                                            for n0 in k0..k0 + 16: # free thread
                                                                x_s0[m0 - b0, n0 - k0] = x[m0, n0]
                                                        for a2 in k0..k0 + 16: # reduce
                                                            acc0 <- add(.., x_s0[a0 - b0, a2 - k0])

In a tile, all threads of a row read the same part of one operand, those of a column of the other:
each chunk stages both parts, the slabs. A slab has the layout of its global loads, so that these
are wide. In other nests, rows that several loops over threads read are staged
(tile/moves/stage.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from weft.core.node import Node, postorder, substitute
from weft.scalar.blocks import locals_in, map_each, nodes, substitute_block
from weft.scalar.divisors import Divisors, of_axis
from weft.scalar.nest import Block, For, Kernel, Load, Stmt, Update, free_variables
from weft.scalar.ops import apply, constant
from weft.targets.gpu import GPU, STATIC
from weft.tile.analysis.access import WIDEST, Ranges, narrow, stride_of, strip_width, trips
from weft.tile.analysis.fragments import operands
from weft.tile.analysis.tiles import Tile, full, guarded, in_strips, on_tiles, tiles_of
from weft.tile.moves.loops import Labels
from weft.tile.moves.stage import RowStager, staged


def stage_inputs(kernel: Kernel, target: GPU) -> Kernel:
    """Stage the sides of tiles, and rows that several loops over threads read."""
    held = sum(b.type.bytes for b in locals_in(kernel.body))
    tiles = list(tiles_of(kernel.body))
    sums = [t.innermost for t in tiles]
    if target.matrix_units and all(s and operands(s.body, False) for s in sums):
        held = 0  # own_rows will have it in registers
    most = min(STATIC if held else max(STATIC, target.shared // 2), target.shared - held)
    if tiles:
        return on_tiles(kernel, lambda tile, labels: _staged(tile, most // len(tiles), labels))
    return replace(kernel, body=RowStager(Labels(kernel.body), most // 2).block(kernel.body))


@dataclass(frozen=True)
class _Slab:
    """A part of a sum's terms that threads share, over a loop of threads and the chunk's."""

    term: Node
    across: For  # the loop of threads it moves with
    inner: For  # the loop inside a chunk

    @property
    def bytes(self) -> int:
        """With a pad between its lines, whichever way they lie."""
        sides, size = (trips(self.across), trips(self.inner)), self.term.type.dtype.bytes
        return max(n * (m * size + WIDEST) for n, m in (sides, sides[::-1]))


def _staged(tile: Tile, most: int, labels: Labels) -> Tile:
    if tile.sum is None:
        return _crossed(tile, most, labels)
    path, chunk = tile.chunk()
    inner = chunk.body[0] if chunk is not None and len(chunk.body) == 1 else None
    if chunk is None or not isinstance(inner, For) or len(inner.body) != 1:
        return tile
    update = inner.body[0]
    if not isinstance(update, Update):
        return tile
    end, even = full(replace(chunk, step=1), chunk.step)
    last = None if even else chunk.hi
    whole = replace(inner, hi=apply("add", chunk.axis, constant(chunk.step)))
    slabs = list(_slabs(update, tile.threads, whole))
    if not slabs or 2 * sum(s.bytes for s in slabs) > most:
        return tile
    loops = (*tile.around, *path, chunk)
    known: dict[Node, int] = {}
    for loop in loops:
        known[loop.axis] = of_axis(loop, known)
    ranges = tile.ranges()
    before: list[Stmt] = []
    reads: dict[Node, Node] = {}
    for slab in slabs:
        fill, reads[slab.term] = _fill(slab, last, known, ranges, labels)
        before += fill
    values = substitute(update.values, reads)
    if last is not None:
        beyond = apply("lt", inner.axis, last)
        values = tuple(guarded(v, inner.axis, beyond) if _reads_global(v) else v for v in values)
    whole = replace(whole, body=(replace(update, values=values),))
    return tile.with_chunk(replace(chunk, hi=end, body=(*before, whole)))


def _crossed(tile: Tile, most: int, labels: Labels) -> Tile:
    """Of a tile that only copies: a slab of what it reads across the direction it stores in."""
    across, along = tile.threads
    ranges = tile.ranges()
    body, before = tile.body, list[Stmt]()
    for term in list(nodes(body)):
        if not isinstance(term.op, Load) or term.op.buffer.space != "global":
            continue
        steps = [stride_of(term, f.axis, ranges) for f in tile.threads]
        if steps[0] == 1 and steps[1] not in (0, 1):
            slab = _Slab(term, along, across)
            if slab.bytes > most:
                continue
            fill, read = _fill(slab, None, None, ranges, labels)
            before += fill
            body = substitute_block(body, {term: read})
    return replace(tile, body=(*before, *body))


def _reads_global(term: Node) -> bool:
    return any(isinstance(n.op, Load) and n.op.buffer.space == "global" for n in postorder(term))


def _slabs(update: Update, threads: tuple[For, ...], inner: For) -> Iterator[_Slab]:
    """The largest terms that move with the chunk and with one loop of threads."""
    stack, seen = list(update.values), set[Node]()
    while stack:
        term = stack.pop()
        moves = [t for t in threads if t.axis in free_variables(term)]
        if term in seen or inner.axis not in free_variables(term) or not moves:
            continue
        seen.add(term)
        if len(moves) == 1 and _reads_global(term):
            yield _Slab(narrow(term), moves[0], inner)
        else:
            stack.extend(term.args)


def _fill(
    slab: _Slab, last: Node | None, known: Divisors | None, ranges: Ranges, labels: Labels
) -> tuple[Block, Node]:
    """The slab's buffer and the loops that fill it; how to read it.

    Threads take strips as wide as the divisors `known` of axes allow; single elements without them.
    """
    term, along = slab.term, slab.inner.axis
    loads = [n for n in postorder(term) if isinstance(n.op, Load)]
    loops = [slab.across, slab.inner]
    if not any(stride_of(n, along, ranges) == 1 for n in loads):
        loops.reverse()  # along the last one memory is contiguous
    if last is not None:
        inside = apply("lt", along, last)
        term = guarded(term, along, inside)
        if not isinstance(term.op, Load):
            term = apply("where", inside, term, constant(0, term.type.dtype))
    name = loads[0].op.buffer.name  # type: ignore[attr-defined]
    buffer = labels.buffer(f"{name}_s", term.type.dtype, tuple(map(trips, loops)), "shared")
    ends = zip(loops, "mn", strict=True)
    copies = {f.axis: For(labels.axis(s), f.lo, f.hi, (), 1, "free", "thread") for f, s in ends}
    fill, read = staged(buffer, term, copies)
    line = copies[loops[1].axis]
    width = 1 if known is None else strip_width(nodes(fill), line.axis, known, ranges)
    if width > 1 and trips(line) % width == 0:
        at = labels.axis("c")
        fill = map_each(fill, For, lambda f: in_strips(f, at, width) if f.axis is line.axis else f)
    return fill, read
