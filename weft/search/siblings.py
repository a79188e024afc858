"""Products of one tensor with several constants, as one with these constants side by side.

replaced = side_by_side(graph, once, target)    # `once`: what constants alone decide
x @ V, x @ W  ->  y = x @ [V W], y[:, :n], y[:, n:]

Each element stays the sum that it was: of the same products, along the same axes. No product of a
family reads another one: all read one tensor, and constants read none.
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from weft.core.node import Graph, Node, make, postorder
from weft.core.passes import PassLog
from weft.core.types import Symbolic
from weft.scalar.blocks import unpacks
from weft.scalar.monoid import SUM
from weft.scalar.ops import constant
from weft.scalar.sizes import hint
from weft.search.quotients import MULTIPLY
from weft.targets.cpu import CPU
from weft.targets.machine import Machine
from weft.tensor.build import Tensor, concat, slice_
from weft.tensor.build import view as view_of
from weft.tensor.ops import Input, Map, Reduce, View, is_expansion, moved, position
from weft.tensor.rules_view import axes_of, compose, viewed

LITTLE = 32  # times as many elements of constants as of results, at least


@dataclass(frozen=True, eq=False)
class Product:
    """A sum of products of a view with a constant: reduce(map{multiply}(read, fixed))."""

    node: Node
    folded: tuple[int, ...]
    read: Node
    view: View  # that `read` is
    fixed: Node

    @property
    def shape(self) -> tuple[int, ...]:
        return self.view.shape

    @property
    def seen(self) -> list[int]:
        """The axes that the view depends on, in the order of what it reads where it has one."""
        return in_order(self.view, len(self.shape))

    @property
    def own(self) -> list[int]:
        """The axes that the constant depends on, in the order of its dimensions."""
        rank, op = len(self.shape), self.fixed.op
        return in_order(op, rank) if isinstance(op, View) else [*range(rank)]

    @property
    def axes(self) -> list[int]:
        """Its axes in an order that is that of others with another order of loops."""
        return [*dict.fromkeys((*self.seen, *self.own, *range(len(self.shape))))]

    def over(self, axes: Sequence[int]) -> Node:
        """The constant over these axes, which are those that it depends on."""
        rank = len(self.shape)
        index = (position(axes.index(d)) if d in axes else constant(0) for d in range(rank))
        part = View(tuple(self.shape[d] for d in axes), tuple(index))
        inside = isinstance(self.fixed.op, View)
        joined = compose(make(part, self.fixed), part) if inside else None
        return joined or viewed(self.fixed, part.shape, part.index)


def in_order(op: View, rank: int) -> list[int]:
    """The axes that a view depends on, first those that are an index, in the order of these."""
    used, index = axes_of(*op.index, op.valid), [*op.index]
    found = [d for d in range(rank) if position(d) in used]
    return sorted(found, key=lambda d: index.index(p) if (p := position(d)) in index else rank)


def product(node: Node, once: Collection[Node]) -> Product | None:
    """The product of a view with a constant that a node is."""
    if not isinstance(node.op, Reduce) or node.op.monoid is not SUM:
        return None
    factors = node.args[0].args if node.args[0].op == MULTIPLY else ()
    if [a in once for a in factors].count(True) != 1 or not all(a.type.rank for a in factors):
        return None
    read, fixed = sorted(factors, key=lambda a: a in once)
    some = any(isinstance(n, Symbolic) or n == 0 for n in node.args[0].type.shape)
    if some or not isinstance(read.op, View):
        return None
    return Product(node, node.op.axes, read, read.op, fixed)


def kinds(p: Product) -> Iterator[tuple[int, Hashable]]:
    """Each axis along which a product may be a part of one, and what is common to these parts."""
    axes = p.axes
    names = tuple(position(axes.index(d)) for d in range(len(axes)))
    op = p.view
    terms = moved((*op.index, op.valid) if op.valid else op.index, names)
    reads = p.read.args[0], terms, repr(op.fill)
    own, folded = (frozenset(axes.index(d) for d in some) for some in (p.own, p.folded))
    for d in sorted({*p.own} - {*p.seen, *p.folded}):
        at = axes.index(d)
        around = tuple(p.shape[a] for a in axes if a != d)
        yield d, (at, around, reads, own, folded, p.node.op.finite)  # type: ignore[attr-defined]


Family = list[tuple[int, Product]]  # with the axis along which each is a part


def families(graph: Graph, once: Collection[Node]) -> Iterator[Family]:
    """Products that may be one: each is in the largest family that it fits."""
    found: dict[Hashable, Family] = {}
    for p in (product(n, once) for n in graph.nodes()):
        for d, kind in kinds(p) if p else ():
            found.setdefault(kind, []).append((d, p))  # type: ignore[arg-type]
    taken = set[Node]()
    for some in sorted(found.values(), key=len, reverse=True):
        family = [(d, p) for d, p in some if p.node not in taken]
        if len(family) > 1:
            taken.update(p.node for _, p in family)
            yield family


def beside(pieces: Sequence[Node], d: int) -> Node:
    """Tensors side by side along an axis; a cast that all have comes after that."""
    op = pieces[0].op
    if isinstance(op, Map) and all(p.op == op and len(p.args) == 1 for p in pieces):
        return make(op, beside([p.args[0] for p in pieces], d))
    return concat([*map(Tensor, pieces)], d).node


def as_one(family: Family) -> dict[Node, Node]:
    """What stands for each product: a part of that with all constants."""
    d, first = family[0]
    axes, own, shape = first.axes, first.own, [*first.shape]
    lengths = [p.shape[a] for a, p in family]
    shape[d] = sum(lengths)
    parts = (p.over([p.axes[axes.index(a)] for a in own]) for _, p in family)
    fixed = viewed(beside([*parts], own.index(d)), tuple(shape), tuple(map(position, own)))
    op = first.view
    read = viewed(first.read.args[0], tuple(shape), op.index, op.valid, op.fill)
    whole = Tensor(make(first.node.op, make(MULTIPLY, read, fixed)))
    replaced: dict[Node, Node] = {}
    for start, (_, p) in zip(accumulate(lengths, initial=0), family, strict=False):
        at = (position(p.axes[axes.index(a)]) for a in range(len(axes)))
        part = slice_(whole, d, start, p.shape[p.axes[axes.index(d)]])
        replaced[p.node] = view_of(part, p.node.type.shape, [*at]).node
    return replaced


def pays(family: Family) -> bool:
    """Whether the results, written and read once more, are little beside what is read of constants.

    Then what a kernel of its own takes to start for each is more. One row is left to fusion.
    """
    constants = sum(prod(p.shape[a] for a in p.own) for _, p in family)
    results = sum(p.node.type.size for _, p in family)
    products = sum(prod(p.shape) for _, p in family)
    return LITTLE * results <= constants < products


def side_by_side(
    graph: Graph, once: Collection[Node], target: Machine, log: PassLog | None = None
) -> dict[Node, Node]:
    """What stands for each product of the families that pay.

    On a CPU alone: a GPU's programs compute what constants decide in each call (link/gpu.py).
    """
    replaced: dict[Node, Node] = {}
    found = families(graph, once) if isinstance(target, CPU) else ()
    for family in filter(pays, found):
        replaced |= as_one(family)
        if log is not None and log.verbose > 1:
            names = ", ".join(graph.names.get(p.node, "t") for _, p in family)
            log.show_choices(f"siblings {names}: one product of constants side by side\n")
    return replaced


def selections(graph: Graph, once: Collection[Node], target: Machine) -> set[Node]:
    """Constants that select between others: in what reads them, each call would select anew.

    Not those that are made of fewer bytes of codes, which stay as narrow as they are stored.
    """
    if not once or not isinstance(target, CPU):
        return set()
    some = {n for n in once if isinstance(n.op, Map) and n.op.function.name == "where"}
    some = {n for n in some if not is_expansion(n) and not _unpacks(n)}
    return {n for n, users in graph.users().items() if n in some and not some.issuperset(users)}


def _unpacks(node: Node) -> bool:
    read = [n.type for n in postorder(node) if isinstance(n.op, Input)]
    return unpacks(read, hint(node.type.size) * node.type.dtype.bytes)
