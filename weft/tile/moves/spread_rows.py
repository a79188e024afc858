"""spread_rows: rows of sums that are spread over lanes, some in registers at a time.

before  for a0 in 0..512:  # free          after  for b0 in 0..512 by 4:  # free
            for c0 in 0..16:  # vector                local shared0: f32[4,64]
                for a1 in 0..64:                      for m0 in b0..b0 + 4: for n0 in 0..64:
                    acc0 <- x * f32(s[a0, a1])            shared0[m0 - b0, n0] = f32(s[m0, n0])
                                                      for a0 in b0..b0 + 4:  # register
                                                          for c0 in 0..16:  # vector
                                                              ... x * shared0[a0 - b0, a1]

What all of them read comes from memory once. What lanes share of a group is computed a vector of
groups at a time, as a scale of 16 bits is that would be converted alone.
"""

from dataclasses import replace

from weft.core.node import Node, op_of, postorder
from weft.scalar.blocks import loops_in, nodes, substitute_block
from weft.scalar.index import simplify
from weft.scalar.nest import Acc, Block, For, Load, Stmt, Update, free_variables, walk
from weft.scalar.ops import apply, constant, has_symbol
from weft.scalar.sizes import hint
from weft.tile.analysis.access import chain, ranges_in, tile_length, trips
from weft.tile.moves.loops import Labels, nested, tiled
from weft.tile.moves.stage import staged

ROWS, TILE = 4, 8  # rows in registers, and accumulators of these and of columns


def rows_inside(nest: For, labels: Labels) -> For:
    """The nest with its few rows in registers: what all of them read comes from memory once.

    Where they leave accumulators, several of the columns that read them are in registers too.
    """
    loops, body = chain(nest, "free")
    lanes = {f.axis for f in loops_in(body) if f.lanes}
    wide = [n for n in nodes(body) if isinstance(n.op, Load) and lanes & free_variables(n)]
    read = free_variables(*(n for n in wide if _bytes(n) == max(map(_bytes, wide))))
    rows, others = ([f for f in loops if (f.axis in read) == there] for there in (False, True))
    if not others:
        return nest
    *others, column = others
    *outer, last = rows or [column]
    sizes = {last: _size(last, ROWS)}
    if rows:
        sizes = {column: _size(column, min(ROWS, TILE // sizes[last])), **sizes}
    cut = [i for i, (f, n) in enumerate(sizes.items()) if has_symbol(f.hi) or trips(f) > n]
    tile, steps = [*sizes], [(i, [*sizes.values()][i]) for i in cut]

    inside = bool(others or outer or steps)  # a loop that what is staged has its place in

    def block(*parts: For) -> Block:
        (made,) = nested(parts, body, bind="register")
        return in_rows(made, lanes, labels) if inside and isinstance(made, For) else (made,)

    return nested((*others, *outer), tiled(tile, steps, labels, block))[0]  # type: ignore[return-value]


def _size(loop: For, most: int) -> int:
    """Iterations of a loop that are in registers at a time: in each block as many, if it can be."""
    if has_symbol(loop.hi):
        return tile_length(loop, most)
    return -(-trips(loop) // -(-trips(loop) // most))


def in_rows(tile: For, lanes: set[Node], labels: Labels) -> Block:
    """The tile behind what groups share, which is computed first, a vector of it at a time."""
    sums = {f.axis: f for f in loops_in((tile,)) if f.role == "reduce" and not f.lanes}
    registers = [f for f in loops_in((tile,)) if f.role == "free"]
    ranges, before, read = ranges_in((tile,)), list[Stmt](), dict[Node, Node]()
    for term in _shared(tile, lanes, set(sums)):
        used = free_variables(term)
        along = [f for f in registers if f.axis in used]
        for axis in sums.keys() & used:
            low, high = (constant(int(n)) for n in ranges[axis])
            after = simplify(apply("add", high, constant(1)), {})
            along.append(For(axis, low, after, (), 1, "free"))
        buffer = labels.buffer("shared", term.type.dtype, [trips(f) for f in along], "local")
        fill, read[term] = staged(buffer, term, [replace(f, bind="") for f in along], labels)
        before += fill
    return (*before, *substitute_block((tile,), read))


def _shared(tile: For, lanes: set[Node], sums: set[Node]) -> list[Node]:
    """What is computed of loads for each group, and is the same in all lanes."""
    found: dict[Node, None] = {}
    stack = [v for s in walk((tile,)) if isinstance(s, Update) for v in s.values]
    while stack:
        term = stack.pop()
        used = free_variables(term)
        if isinstance(term.op, Load | Acc) or not term.type.dtype.is_float or not sums & used:
            continue
        if lanes & used or any(isinstance(n.op, Acc) for n in postorder(term)):
            stack += term.args
        else:
            found[term] = None
    return [*found]


def _bytes(load: Node) -> int:
    return hint(op_of(load, Load).buffer.bytes)
