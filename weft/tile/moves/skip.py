"""Skips columns that a mask rules out for all rows of a block: their loops end before these.

before  local s: f32[64,512]                       after  local s: f32[64,512]
        for b1 in 0..512 by 64:                           for b1 in 0..a0 * 64 + 64 by 64:
            v0 = ge(a0 * 64 + a3, a4)                         v0 = ge(a0 * 64 + a3, a4)
            ... acc0 <- add(acc0, where(v0, s, 0))            ...

Columns of local buffers are skipped where every fold over them would add its identity, and nothing
else is stored. Products with 0 are so in a `finite` fold alone, where 0 * x is 0 whatever x is, as
in ATen's attention. Where a program does the same by hand a later value may be infinite, and all
rows then NaN: none is skipped.

ruled_out(slack(a0 * 64 + a3 >= a4), (a4,), {a3: (0, 63)})       # a0 * 64 + 64
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from weft.core.node import Node, postorder, rebuild, substitute
from weft.scalar import nest
from weft.scalar.affine import Linear, from_linear, function_of, has_symbol, slack
from weft.scalar.blocks import accesses, locals_in, loops_in, map_loops, map_outermost, nodes
from weft.scalar.index import simplify
from weft.scalar.intervals import bounds
from weft.scalar.nest import Block, For, Stmt
from weft.scalar.ops import add, apply, axis, constant, floordiv, minimum, multiply, value_of
from weft.scalar.reach import ranges_inside
from weft.scalar.rules import VOCABULARY, fold
from weft.scalar.updates import lifted
from weft.tile.analysis.access import Ranges, ranges_in
from weft.tile.moves.partial import ending

LONGEST = 1 << 40  # elements that no axis has
BEYOND = axis("beyond")  # how far past the last column that is kept


def skipped(block: Block, known: Ranges | None = None) -> Block:
    """The block with all blocks inside that have local buffers shortened, where that is right."""
    ranges = known or {}
    if any(isinstance(s, nest.Local) for s in block):
        shorter = (c.shortened() for c in _candidates(block, ranges))
        block = next((s for s in shorter if s is not None), block)
    return map_loops(block, lambda s: replace(s, body=skipped(s.body, ranges_inside(s, ranges))))


def ruled_out(condition: Linear, columns: Collection[Node], rows: Ranges) -> Node | None:
    """The column from which on a condition fails in all rows; None where it rules out no columns.

    condition   its `slack`, at least 0 where it holds
    columns     axes whose sum is a column
    rows        the ranges of the axes that count rows
    """
    form, offset = condition
    if any(form.get(a) != -1 for a in columns):
        return None
    rest = {a: k for a, k in form.items() if a not in columns}
    most = {a: constant(int(bounds(a, rows)[k > 0])) for a, k in rest.items() if a in rows}
    return substitute((from_linear(rest, offset + 1),), most)[0]


def halfway(block: Block, middle: Mapping[Node, Node] = {}) -> Block:
    """The block as its price sees it: a loop that ends at other axes, where these are halfway."""

    def one(loop: For) -> For:
        hi = simplify(substitute((loop.hi,), dict(middle))[0], {})
        half = apply(floordiv, apply(add, loop.lo, hi), constant(2))
        body = halfway(loop.body, {**middle, loop.axis: half})
        return replace(loop, hi=loop.hi if nest.free_variables(loop.lo) else hi, body=body)

    return map_loops(block, one)


@dataclass
class _Columns:
    """The columns of a block from `end` on, of the loop `first`."""

    block: Block
    ranges: Ranges
    inside: Ranges
    roots: dict[Node, For]
    first: For
    end: Node

    def shortened(self) -> Block | None:
        """The block without them; None where that would change its meaning."""
        self.loops = self._related()
        sizes = {(f.lo, f.hi) for f in self.loops}
        end = self._rounded()
        if len(sizes) != 1 or value_of(end) is not None or not self._void():
            return None

        def one(loop: For) -> For | None:
            if loop not in self.loops:
                return None
            return replace(loop, hi=end, body=ending(loop, end))

        return map_outermost(self.block, one)

    def _rounded(self) -> Node:
        """The end in whole blocks, all before the old one; a literal where some are not."""
        if has_symbol(self.first.hi):  # there the last block may be a part of one
            return simplify(apply(minimum, self.end, self.first.hi), self.ranges)
        width = math.lcm(*(f.step for f in self.loops))
        whole = apply(floordiv, apply(add, self.end, constant(width - 1)), constant(width))
        end = simplify(apply(multiply, whole, constant(width)), self.ranges)
        extent = self.first.extent
        return end if extent is not None and bounds(end, self.ranges)[1] <= extent else constant(0)

    def _related(self) -> list[For]:
        """The loops over those columns of the block's buffers; none where one is read elsewhere."""
        own = [(b, index) for b, index in accesses(self.block) if b.space == "local"]
        touched = [(b, p, self.roots.get(i)) for b, index in own for p, i in enumerate(index)]
        found, before = [self.first], 0
        while before != len(found):
            before = len(found)
            places = {(b, p) for b, p, loop in touched if loop in found}
            for loop in (loop for b, p, loop in touched if (b, p) in places):
                if loop is None:
                    return []
                if loop not in found:
                    found.append(loop)
        return found

    def _void(self) -> bool:
        """Whether the iterations from `end` on add nothing to a fold and store nothing read."""
        past = apply(add, self.end, BEYOND)
        columns = {a: past for a, loop in self.roots.items() if loop in self.loops}
        inner, own_buffers = locals_in(tuple(self.loops)), locals_in(self.block)
        most = LONGEST if has_symbol(self.first.hi) else self.first.extent or 0
        ranges = self.inside | {BEYOND: (0, most)}
        stored: dict[nest.Buffer, Node] = {}  # what the columns hold, where it is a literal
        folded: dict[Node, Node] = {}  # accumulators that are still what they start as
        own: set[nest.Fold] = set()  # declared by the loops that are cut, or inside them

        def change(node: Node) -> Node | None:
            if isinstance(node.op, nest.Load) and BEYOND in postorder(*node.args):
                return stored.get(node.op.buffer)
            return folded.get(node) or _absorbed(node)

        def value(term: Node, finite: bool = False) -> Node:
            term = simplify(substitute((term,), columns)[0], ranges)
            return rebuild((term,), lambda n: _zero(n) or change(n) if finite else change(n))[0]

        def visit(block: Block, cut: bool) -> bool:
            return all(one(s, cut) for s in block)

        def one(stmt: Stmt, cut: bool) -> bool:
            if isinstance(stmt, For):
                cut = cut or stmt in self.loops
                own.update(stmt.folds if cut else ())
                for fold in stmt.folds if cut else ():
                    folded.update(zip(fold.accs, fold.monoid.identity(fold.dtypes), strict=True))
                accs = [a for f in stmt.folds for a in f.accs] if stmt in self.loops else []
                return visit(stmt.body, cut) and all(a in folded for a in accs)
            if cut and isinstance(stmt, nest.Store):
                result = value(stmt.value)
                stored.pop(stmt.buffer, None)
                if value_of(result) is not None and self._whole(stmt, columns):
                    stored[stmt.buffer] = result
                at_columns = any(i in columns for i in stmt.index)
                return stmt.buffer in inner or (stmt.buffer in own_buffers and at_columns)
            if cut and isinstance(stmt, nest.Update):
                values = lifted(stmt)
                start = stmt.fold.monoid.identity(stmt.fold.dtypes)
                if tuple(value(v, stmt.fold.finite) for v in values) != start:
                    for acc in stmt.fold.accs:
                        folded.pop(acc, None)
                    return stmt.fold in own
            return True

        return visit(self.block, False)

    def _whole(self, stmt: nest.Store, columns: Collection[Node]) -> bool:
        """Whether the store writes every row of its buffer that is touched."""
        if stmt.mask is not None:
            return False
        for place, i in enumerate(stmt.index):
            of = [at[place] for b, at in accesses(self.block) if b == stmt.buffer]
            ends = {(f.lo, f.hi) if f else None for f in map(self.roots.get, of)}
            # an end that is another one in each iteration of a loop of the block
            moves = any(self.roots.keys() & nest.free_variables(t) for e in ends if e for t in e)
            if i not in columns and (None in ends or len(ends) != 1 or moves):
                return False
        return True


def _candidates(block: Block, ranges: Ranges) -> Iterator[_Columns]:
    """Each condition by which columns from some end on are ruled out."""
    roots: dict[Node, For] = {}  # the outermost loop that each axis runs in blocks of
    for loop in loops_in(block):
        roots[loop.axis] = roots.get(loop.lo, loop)
    inside = ranges_in(block, ranges)
    rows = {a: inside[a] for a in roots}
    for condition in filter(None, map(slack, nodes(block))):
        for column in (a for a in condition[0] if a in roots):
            end = ruled_out(condition, (column,), rows)
            if end is not None:
                yield _Columns(block, ranges, inside, roots, roots[column], end)


def _zero(node: Node) -> Node | None:
    """A product with 0, where that is 0 whatever the other factor is."""
    zeros = (a for a in node.args if function_of(node) == "multiply" and value_of(a) == 0)
    return next(zeros, None)


def _absorbed(node: Node) -> Node | None:
    """A function of literals, or of one that decides it whatever finite number the other is."""
    name, literals = function_of(node), {value_of(a): a for a in reversed(node.args)}
    if name is None:  # a load at literal places, too
        return None
    infinite = name == "add" or (name == "subtract" and value_of(node.args[0]) is not None)
    if infinite and -math.inf in literals:
        return literals[-math.inf]
    return fold(node, VOCABULARY)
