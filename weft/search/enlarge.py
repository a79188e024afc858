"""Sums that read one tensor beside each other, as one sum: convolutions enlarged and joined.

conv3x3(x, w) + conv1x1(x, v) = sum_crs x[c, i+r-1, j+s-1] (w[o,c,r,s] + [r == 1 and s == 1] v[o,c])
conv3x3(x, w) + x             = the same with [c == o and r == 1 and s == 1] in place of the latter

A tensor is read as zeros beyond its borders, whether padding says so or it is not read there.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import permutations, product
from typing import NamedTuple

from weft.core.node import Node, Nodes
from weft.scalar.affine import from_linear, linear, plus
from weft.scalar.index import TRUE, inside, narrow, simplify
from weft.scalar.ops import apply, apply_all, constant
from weft.search.egraph import Axes, EGraph, Ids, Term, is_zero_elsewhere, monomials, read_by
from weft.tensor.ops import View, box, moved
from weft.tensor.rules_view import axes_of

Steps = tuple[tuple[Node, Node], ...]  # of each axis that a read moves along, where it is another


class Read(NamedTuple):
    """An addend as a sum over axes of an element of a tensor times other factors."""

    tensor: Node
    place: Nodes  # which may be beyond the borders, where zeros are
    axes: Axes
    leaf: int
    others: Ids


@lru_cache(maxsize=1 << 10)
def is_padding(view: Node) -> bool:
    """Whether a view of a tensor has zeros just where it is beyond the borders of that."""
    op = view.op
    if not is_zero_elsewhere(view):
        return False
    assert isinstance(op, View) and op.valid is not None
    ranges = box(op.shape)
    pairs = zip(op.index, view.args[0].type.shape, strict=True)
    within = [apply(*c) for t, n in pairs for c in (("ge", t, constant(0)), ("lt", t, constant(n)))]
    some = simplify(apply_all("and", within), ranges)
    return simplify(op.valid, narrow(some, ranges)) is TRUE


def _tensors(g: EGraph, i: int) -> set[Node]:
    """What factors of a class read."""
    factors = {f for _, some in monomials(g, i) for f in some}
    return {read_by(t.data[0]) for f in factors for t in g.of(f, "leaf")}


def _place(g: EGraph, leaf: Term) -> tuple[Node, Nodes]:
    """The tensor that a leaf reads, and where, beyond its borders too; () if it is masked."""
    tensor, index = leaf.data
    if is_zero_elsewhere(tensor):
        if not is_padding(tensor):
            return tensor, ()
        tensor, index = tensor.args[0], moved(tensor.op.index, index)
    ranges = g.ranges(*index)
    return tensor, tuple(simplify(t, ranges) for t in index)


def reads(g: EGraph, i: int, shared: Collection[Node]) -> list[Read]:
    """A class as reads of some tensors, each with the fewest other factors that there are."""
    found: dict[tuple[int, Axes], Read] = {}
    for axes, factors in monomials(g, i):
        for k, f in enumerate(map(g.find, factors)):
            others, known = factors[:k] + factors[k + 1 :], found.get((f, axes))
            for leaf in g.of(f, "leaf"):
                if read_by(leaf.data[0]) not in shared:
                    continue
                if leaf not in g.places:
                    g.places[leaf] = _place(g, leaf)
                tensor, place = g.places[leaf]
                if place and (known is None or len(others) < len(known.others)):
                    found[f, axes] = Read(tensor, place, axes, f, others)
    return [*found.values()]


def beside(g: EGraph, term: Term) -> Iterator[tuple[Ids, Read, Read, Steps]]:
    """(the other addends, a read that moves along axes, another one, and where that is on these)"""
    tensors = Counter(t for a in term.args for t in _tensors(g, a))
    shared = {t for t, n in tensors.items() if n > 1}
    known = [reads(g, a, shared) for a in term.args if shared]
    for i, j in permutations(range(len(known)), 2):
        others = tuple(a for k, a in enumerate(term.args) if k not in (i, j))
        for over, at in product(known[i], known[j]):
            if over.tensor is not at.tensor or over.leaf == at.leaf:
                continue
            # by numbers alone, it is more exact than it would be among partial sums
            if any(g.value(f) is None for f in at.others) and (steps := solved(over, at)):
                yield others, over, at, steps


def solved(over: Read, at: Read) -> Steps | None:
    """Where the axes of one read have to be for it to be another: the forms are equal there."""
    found: dict[Node, Node] = {}
    if len(over.place) != len(at.place):
        return None
    for p, q in zip(over.place, at.place, strict=True):
        own = axes_of(p) & over.axes
        if not own and p is q:
            continue
        form, offset = linear(p)
        if len(own) != 1 or not own <= form.keys():
            return None
        (a,) = own
        left = plus(linear(q), ({b: v for b, v in form.items() if b is not a}, offset), -1)
        if any(v % form[a] for v in (*left[0].values(), left[1])):
            return None
        there = from_linear({b: v // form[a] for b, v in left[0].items()}, left[1] // form[a])
        if found.setdefault(a, there) is not there:
            return None
    return tuple(found.items())


def _renamed(g: EGraph, at: Read, steps: Steps) -> dict[Node, Node]:
    """The axes of a read that are those of the other one by another name."""
    terms = [t for _, t in steps]
    return {
        b: a
        for a, b in steps
        if b in at.axes
        and g.extents[b] == g.extents[a]
        and sum(b in axes_of(t) for t in terms) == 1
    }


def is_passed(g: EGraph, others: Ids, over: Read, at: Read, steps: Steps) -> bool:
    """Whether the axes get there, and no name means two axes."""
    along, names = Axes(a for a, _ in steps), _renamed(g, at, steps)
    around = (g.free(*at.others) | axes_of(*at.place)) - at.axes
    return (
        all(inside(t, g.extents[a], g.ranges(t)) for a, t in steps)
        and along.isdisjoint(around | (at.axes - names.keys()))
        and at.axes.isdisjoint(axes_of(*over.place) - along)
        and all(g.bound(f).isdisjoint(names.values()) for f in at.others)
    )


def joined(g: EGraph, others: Ids, over: Read, at: Read, steps: Steps) -> int:
    along, names = Axes(a for a, _ in steps), _renamed(g, at, steps)
    there = [apply("eq", a, t) for a, t in steps if t not in names]
    mine = g.sum(over.axes - along, g.mul(over.others))
    yours = [g.renamed(f, names, {}) for f in at.others]
    if there:
        yours.append(g.mask(apply_all("and", there)))
    inner = g.add((mine, g.sum(at.axes - names.keys(), g.mul(yours))))
    return g.add((*others, g.sum(along, g.mul((over.leaf, inner)))))
