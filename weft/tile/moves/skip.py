"""Skips columns that a mask rules out for all rows of a block: their loops end before these.

before  local s: f32[64,512]                       after  local s: f32[64,512]
        for b1 in 0..512 by 64:                           for b1 in 0..a0 * 64 + 64 by 64:
            v0 = ge(a0 * 64 + a3, a4)                         v0 = ge(a0 * 64 + a3, a4)
            ... acc0 <- add(acc0, where(v0, s, 0))            ...

Columns of local buffers are skipped where every fold over them would add its identity, and nothing
else is stored. Products with 0 are so in a `finite` fold alone, where 0 * x is 0 whatever x is, as
in ATen's attention. Where a program does the same by hand a later value may be infinite, and all
rows then NaN: none is skipped.

Columns before a start, which a window of the last 256 rules out, are skipped likewise: the loops
begin at maximum(a0 * 64 - 256, 0). A bound may be loaded, where it is the same for all rows of a
block: the blocks of a document. A condition that no row changes then holds in all iterations.

ruled_out(slack(a0 * 64 + a3 >= a4), (a4,), {a3: (0, 63)})       # a0 * 64 + 64
ruled_out_before(slack(a3 - a4 < 9), a4, {a3: (0, 63)})           # -8
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from weft.core.node import Node, postorder, rebuild, substitute
from weft.core.types import boolean
from weft.scalar import nest
from weft.scalar.affine import Linear, from_linear, function_of, has_symbol, linear, slack
from weft.scalar.blocks import (
    accesses,
    locals_in,
    loops_in,
    map_loops,
    map_outermost,
    nodes,
    rewrite_block,
)
from weft.scalar.index import simplify
from weft.scalar.intervals import bounds
from weft.scalar.nest import Block, For, Stmt, walk
from weft.scalar.ops import (
    Axis,
    add,
    apply,
    axis,
    constant,
    floordiv,
    maximum,
    minimum,
    multiply,
    subtract,
    value_of,
)
from weft.scalar.reach import ranges_inside
from weft.scalar.rules import VOCABULARY, fold
from weft.scalar.symbols import linear_bounds, negative
from weft.scalar.updates import lifted
from weft.tile.analysis.access import Ranges, ranges_in
from weft.tile.moves.partial import ending

LONGEST = 1 << 40  # elements that no axis has
BEYOND = axis("beyond")  # how far past the last column that is kept, or before the first


def skipped(block: Block, known: Ranges | None = None) -> Block:
    """The block with all blocks inside that have local buffers shortened, where that is right."""
    ranges = known or {}
    if any(isinstance(s, nest.Local) for s in block):
        for kind, loaded in product((_End, _Start), (False, True)):
            found = (c for c in _candidates(block, ranges, kind) if is_loaded(c.bound) is loaded)
            shorter = (c.shortened() for c in found)
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
    return _most({a: k for a, k in form.items() if a not in columns}, offset + 1, rows)


def ruled_out_before(condition: Linear, column: Node, rows: Ranges) -> Node | None:
    """The column before which a condition fails in all rows; None where it rules out none."""
    form, offset = condition
    if form.get(column) != 1:
        return None
    rest = _most({a: k for a, k in form.items() if a is not column}, offset, rows)
    return from_linear(*negative(linear(rest)))


def _most(form: Mapping[Node, int], offset: int, rows: Ranges) -> Node:
    """The form where the axes that count rows make most of it."""
    most = {a: constant(int(bounds(a, rows)[k > 0])) for a, k in form.items() if a in rows}
    return substitute((from_linear(form, offset),), most)[0]


def halfway(block: Block, middle: Mapping[Node, Node] = {}) -> Block:
    """The block as its price sees it: a loop that ends at other axes, where these are halfway."""

    def one(loop: For) -> For:
        lo, hi = (simplify(t, {}) for t in substitute((loop.lo, loop.hi), dict(middle)))
        half = apply(floordiv, apply(add, lo, hi), constant(2))
        body = halfway(loop.body, {**middle, loop.axis: half})
        inner = isinstance(loop.lo.op, Axis)  # it runs over a block, and is as long in each
        return replace(loop, body=body) if inner else replace(loop, lo=lo, hi=hi, body=body)

    return map_loops(block, one)


@dataclass
class _Columns:
    """The columns of a block, of the loop `first`, that lie beyond its bound."""

    block: Block
    ranges: Ranges
    inside: Ranges
    roots: dict[Node, For]
    first: For
    bound: Node

    def shortened(self) -> Block | None:
        """The block without them; None where that would change its meaning."""
        self.loops = self._related()
        sizes = {(f.lo, f.hi) for f in self.loops}
        self.width = math.lcm(*(f.step for f in self.loops))  # whole blocks alone are left out
        bound = self.rounded()
        if len(sizes) != 1 or value_of(bound) is not None or not self._void():
            return None
        block = map_outermost(self.block, lambda f: self.cut(f, bound) if f in self.loops else None)
        return self._without_conditions(block) if self._exact() else block

    def _exact(self) -> bool:
        """Whether the bound ends a block of columns, whatever is loaded."""
        terms, offset = linear(self.bound)
        return not any(k % self.width for k in (*terms.values(), offset))

    def _without_conditions(self, block: Block) -> Block:
        """What rules out the columns beyond holds for all others."""
        columns = {a for a, loop in self.roots.items() if loop in self.loops}
        rows = {a: self.inside[a] for a in self.roots}

        def change(node: Node) -> Node | None:
            condition = slack(node)
            axes = nest.free_variables(node) & self.roots.keys() if condition else frozenset[Node]()
            column = next(iter(axes)) if len(axes) == 1 else None
            if condition is None or column not in columns:
                return _chosen(node)
            return constant(True) if self.of(condition, column, rows) is self.bound else None

        return rewrite_block(block, change)

    @staticmethod
    def of(condition: Linear, column: Node, rows: Ranges) -> Node | None:
        """The column from which on, or before which, a condition fails in all rows."""
        raise NotImplementedError

    def rounded(self) -> Node:
        """The bound in whole blocks, inside the old ones; a literal where it may not be."""
        raise NotImplementedError

    def cut(self, loop: For, bound: Node) -> For:
        raise NotImplementedError

    def column_beyond(self) -> Node:
        """A column that is left out, BEYOND of them past the bound."""
        raise NotImplementedError

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
        """Whether the iterations beyond add nothing to a fold and store nothing read."""
        past = self.column_beyond()
        columns = {a: past for a, loop in self.roots.items() if loop in self.loops}
        inner, own_buffers = locals_in(tuple(self.loops)), locals_in(self.block)
        most = self.first.extent or LONGEST
        ranges = self.inside | {BEYOND: (0, most)}
        stored: dict[nest.Buffer, Node] = {}  # what the columns hold, where it is a literal
        folded: dict[Node, Node] = {}  # accumulators that are still what they start as
        own: set[nest.Fold] = set()  # declared by the loops that are cut, or inside them

        def change(node: Node) -> Node | None:
            if isinstance(node.op, nest.Load) and BEYOND in postorder(*node.args):
                return stored.get(node.op.buffer)
            return folded.get(node) or _decided(node, ranges) or _absorbed(node)

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


class _End(_Columns):
    """Columns from a bound on."""

    def rounded(self) -> Node:
        if has_symbol(self.first.hi):  # there the last block may be a part of one
            return simplify(apply(minimum, self.bound, self.first.hi), self.ranges)
        if is_loaded(self.bound) and self._exact():
            return apply(minimum, self.bound, self.first.hi)
        whole = apply(
            floordiv, apply(add, self.bound, constant(self.width - 1)), constant(self.width)
        )
        end = simplify(apply(multiply, whole, constant(self.width)), self.ranges)
        if is_loaded(self.bound):
            return apply(minimum, end, self.first.hi)
        extent = self.first.extent
        return end if extent is not None and bounds(end, self.ranges)[1] <= extent else constant(0)

    def cut(self, loop: For, bound: Node) -> For:
        return replace(loop, hi=bound, body=ending(loop, bound))

    def column_beyond(self) -> Node:
        return apply(add, self.bound, BEYOND)

    @staticmethod
    def of(condition: Linear, column: Node, rows: Ranges) -> Node | None:
        return ruled_out(condition, (column,), rows)


class _Start(_Columns):
    """Columns before a bound."""

    def rounded(self) -> Node:
        if is_loaded(self.bound) and self._exact():
            return apply(minimum, apply(maximum, self.bound, self.first.lo), self.first.hi)
        whole = apply(floordiv, self.bound, constant(self.width))
        start = simplify(apply(multiply, whole, constant(self.width)), self.ranges)
        if is_loaded(self.bound):
            return apply(minimum, apply(maximum, start, self.first.lo), self.first.hi)
        left = simplify(apply(subtract, self.first.hi, start), self.ranges)
        fits = value_of(self.first.lo) == 0 and bounds(left, self.ranges)[0] >= 0
        return simplify(apply(maximum, start, constant(0)), self.ranges) if fits else constant(0)

    def cut(self, loop: For, bound: Node) -> For:
        return replace(loop, lo=bound)

    def column_beyond(self) -> Node:
        return apply(subtract, apply(subtract, self.bound, constant(1)), BEYOND)

    of = staticmethod(ruled_out_before)


def _candidates(
    block: Block, ranges: Ranges, kind: type[_End] | type[_Start]
) -> Iterator[_Columns]:
    """Each condition by which columns are ruled out."""
    roots: dict[Node, For] = {}  # the outermost loop that each axis runs in blocks of
    for loop in loops_in(block):
        roots[loop.axis] = roots.get(loop.lo, loop)
    inside = ranges_in(block, ranges)
    rows = {a: inside[a] for a in roots}
    for condition in filter(None, map(slack, nodes(block))):
        for column in (a for a in condition[0] if a in roots):
            bound = kind.of(condition, column, rows)
            if bound is not None and _is_known(bound, block, rows):
                yield kind(block, ranges, inside, roots, roots[column], bound)


def is_loaded(bound: Node) -> bool:
    """Whether it is found in memory, where no range is known of it."""
    return any(isinstance(n.op, nest.Load) for n in postorder(bound))


def _is_known(bound: Node, block: Block, rows: Collection[Node]) -> bool:
    """Whether a bound is the same for all rows, and not what the block itself computes."""
    own = {b for b, _ in accesses(block) if b.space == "local"}
    own |= {s.buffer for s in walk(block) if isinstance(s, nest.Store)}
    read = {n.op.buffer for n in postorder(bound) if isinstance(n.op, nest.Load)}
    return read.isdisjoint(own) and nest.free_variables(bound).isdisjoint(rows)


def _zero(node: Node) -> Node | None:
    """A product with 0, where that is 0 whatever the other factor is."""
    zeros = (a for a in node.args if function_of(node) == "multiply" and value_of(a) == 0)
    return next(zeros, None)


def _decided(node: Node, ranges: Ranges) -> Node | None:
    """A comparison with what is loaded, where the ranges decide it whatever that is."""
    condition = slack(node)
    low, high = linear_bounds(*condition, ranges) if condition else (-1, 0)
    return constant(low >= 0) if low >= 0 or high < 0 else None


def _absorbed(node: Node) -> Node | None:
    """A function of literals, or of one that decides it whatever finite number the other is."""
    name, literals = function_of(node), {value_of(a): a for a in reversed(node.args)}
    if name is None:  # a load at literal places, too
        return None
    infinite = name == "add" or (name == "subtract" and value_of(node.args[0]) is not None)
    if infinite and -math.inf in literals:
        return literals[-math.inf]
    return _chosen(node) or fold(node, VOCABULARY)


def _chosen(node: Node) -> Node | None:
    """Of a condition or a choice, the argument that it is, where a literal decides that."""
    name, literal = function_of(node), next(map(value_of, node.args), None)
    if name == "where" and literal is not None:
        return node.args[1] if literal else node.args[2]
    if name == "and" and node.type.dtype is boolean:
        for a, b in (node.args, node.args[::-1]):
            if (known := value_of(a)) is not None:
                return b if known else a
    return None
