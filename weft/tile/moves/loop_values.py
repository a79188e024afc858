"""Moves of loops: split, reorder, join, merge, bind, vectorize, and a fold in blocks.

Split("a0", 8).apply(kernel, target)    # the kernel with a0 in blocks of 8; WeftError if illegal
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.core.errors import choice
from weft.core.node import require
from weft.scalar.blocks import accesses, loops_in, nodes, only_loop, stored_in, substitute_block
from weft.scalar.nest import ASKED, Block, For, Local, free_variables
from weft.scalar.ops import has_symbol
from weft.scalar.reach import longest
from weft.scalar.structure import is_checked
from weft.tile.moves import legal
from weft.tile.moves.bind import whole_blocks
from weft.tile.moves.join import joined
from weft.tile.moves.legal import Scene
from weft.tile.moves.loops import blocked, nested
from weft.tile.moves.parts import split_fold
from weft.tile.moves.values import Move, Name


@dataclass(frozen=True)
class Split(Move):
    """Runs a loop in blocks: needs a loop that is not bound, and not in blocks itself.

    before  for a0 in 0..100:       after  for b0 in 0..100 by 8:
                y[a0] = ...                    for a0 in b0..min(b0 + 8, 100):
                                                   y[a0] = ...
    On a GPU the blocks of a free loop are whole, and accesses beyond its end are masked.
    """

    name = "split"
    axis: Name
    by: int

    def change(self, at: Scene) -> Block:
        loop = at.whole(self.axis, self.by)
        if not at.on_gpu or loop.role != "free":
            return at.put(loop, blocked(loop, at.labels.axis("b"), self.by, bind=""))
        known = has_symbol(loop.hi) or longest(loop.lo, loop.hi) is not None
        require(known, f"how long {self.axis} is depends on a loop around it")
        outer, inner, body = whole_blocks(loop, self.by, at.labels, loop.body)
        told = "beyond the end of the last block a check may fail: split by a divisor"
        require(body is loop.body or not is_checked(body), told)
        return at.put(loop, replace(outer, body=(replace(inner, body=body),), bind=""))


@dataclass(frozen=True)
class Reorder(Move):
    """Exchanges two loops: needs a perfect nest from one to the other, all free or all reduce.

    before  for a0 in ..: for a1 in ..: ...     after  for a1 in ..: for a0 in ..: ...
    """

    name = "reorder"
    outer: Name
    inner: Name

    def change(self, at: Scene) -> Block:
        chain = at.chain(self.outer, self.inner)
        ordered = any(f.monoid.append for f in chain[0].folds)
        require(not ordered, f"the fold of {self.outer} takes values in their order")
        order = [chain[-1], *chain[1:-1], chain[0]]
        for i, loop in enumerate(order):
            legal.clash(loop)
            inside = {f.axis for f in order[i + 1 :]}
            told = f"the ends of {loop.label} move with a loop that would be inside of it"
            require(inside.isdisjoint(free_variables(loop.lo, loop.hi)), told)
        outer, *others = (replace(f, folds=()) for f in order)
        body = nested(others, chain[-1].body)
        return at.put(chain[0], replace(outer, body=body, folds=chain[0].folds))


@dataclass(frozen=True)
class Join(Move):
    """Makes one loop of two: needs a perfect nest of two, both free or both reduce.

    before  for a0 in 0..28: for a1 in 0..512: x[a0, a1]
    after   for j0 in 0..14336: x[j0 // 512, j0 % 512]
    """

    name = "join"
    outer: Name
    inner: Name

    def change(self, at: Scene) -> Block:
        outer, *between, inner = at.chain(self.outer, self.inner)
        require(not between, f"there are loops between {self.outer} and {self.inner}")
        both = joined(outer, inner, at.labels)
        told = f"how often {self.inner} runs is no number, or moves with {self.outer}"
        require(both is not None, told)
        return at.put(outer, both)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Merge(Move):
    """Makes one loop of two that follow each other: needs the same ends, and both free or reduce.

    before  for a0 in 0..8: t[a0] = ...         after  for a0 in 0..8:
            for a1 in 0..8: y[a1] = t[a1]                  t[a0] = ...
                                                           y[a0] = t[a0]
    An iteration of the second may read what the same iteration of the first stores, and no more.
    """

    name = "merge"
    first: Name
    second: Name

    def change(self, at: Scene) -> Block:
        first, second = at.free(self.first), at.free(self.second)
        around = at.path(self.first)[:-1]
        block = around[-1].body if around else at.kernel.body
        places = [i for i, s in enumerate(block) if s is first or s is second]
        start, end = places[0], places[-1]
        between = block[start + 1 : end]
        told = f"{self.second} does not follow {self.first}"
        follows = block[start] is first and block[end] is second and start < end
        require(follows and all(isinstance(s, Local) for s in between), told)
        told = f"{self.first} is a {first.role} loop, and {self.second} a {second.role} loop"
        require(first.role == second.role != "scan", told)
        same = (first.lo, first.hi, first.step) == (second.lo, second.hi, second.step)
        require(same, f"{self.first} and {self.second} have other ends")
        one = _merged(first, second)
        body = (*block[:start], *between, one, *block[end + 1 :])
        return at.put(around[-1], replace(around[-1], body=body)) if around else body


def _merged(first: For, second: For) -> For:
    """One loop of two; WeftError where the second needs what other iterations of the first do."""
    made = {n for f in loops_in((first,)) for fold in f.folds for n in fold.accs}
    told = f"{second.label} needs what {first.label} folds"
    require(made.isdisjoint(free_variables(*nodes((second,)))), told)
    body = substitute_block(second.body, {second.axis: first.axis})
    one = replace(first, body=(*first.body, *body), folds=(*first.folds, *second.folds))
    touched = [{b for b, _ in accesses(part)} for part in (first.body, body)]
    for b in touched[0] & touched[1] & stored_in(one.body):
        told = f"iterations of {second.label} may touch what others of {first.label} do in {b.name}"
        require(not legal.meets(one, b), told)
    return one


@dataclass(frozen=True)
class Bind(Move):
    """Says how iterations run: needs a loop whose role and place allow that.

    parallel      on the threads of a CPU       grid        on the blocks of a GPU
    vector2 ..    in the lanes of a register    thread      on the threads of a block
    register      side by side, unrolled        lane, warp  on threads that share an iteration of
    unroll        in order, unrolled                        a loop bound to thread
    fenced        in order: each reads memory anew
    """

    name = "bind"
    axis: Name
    to: Name

    def change(self, at: Scene) -> Block:
        loop, path = at.free(self.axis), at.path(self.axis)
        alone = self.to != "grid" or only_loop(at.kernel.body) is path[0]
        require(alone, "a kernel of several nests has one block: bind to thread")
        rules = {**legal.rules_for(at.target), **dict.fromkeys(ASKED, lambda *_: None)}
        kind = "vector" if self.to.startswith("vector") else self.to
        rules[choice("bind", kind, rules)](path, self.to, at.target)
        return at.put(loop, replace(loop, bind=str(self.to)))


@dataclass(frozen=True)
class SplitFold(Move):
    """Folds each block of a loop by itself: needs a reduce loop that declares all folds inside.

    before  for a0 in 0..100:  # reduce     after  for s0 in 0..100 by 8:  # reduce
                acc0 <- add(acc0, x)                   for a0 in s0..min(s0 + 8, 100):  # reduce
                                                           acc0_s0 <- add(acc0_s0, x)
                                                       acc0 <- add(acc0, acc0_s0)
    """

    name = "split_fold"
    axis: Name
    by: int

    def change(self, at: Scene) -> Block:
        loop = at.whole(self.axis, self.by)
        require(loop.role == "reduce" and bool(loop.folds), f"{self.axis} declares no fold")
        other = next((f.label for f in loops_in(loop.body) if f.folds), None)
        require(other is None, f"{other} inside of {self.axis} folds by itself")
        return at.put(loop, split_fold(loop, self.by, at.labels, bind=""))


@dataclass(frozen=True)
class Vectorize(Move):
    """Splits a loop and runs its blocks over lanes: needs what split and bind need, on a CPU.

    before  for a0 in 0..100:       after  for b0 in 0..100 by 8:
                y[a0] = ...                    for a0 in b0..min(b0 + 8, 100):  # vector8
                                                   y[a0] = ...
    """

    name = "vectorize"
    axis: Name
    lanes: int

    def change(self, at: Scene) -> Block:
        body = Split(self.axis, self.lanes).change(at)
        blocks = Scene(replace(at.kernel, body=body), at.target)
        return Bind(self.axis, Name(f"vector{self.lanes}")).change(blocks)
