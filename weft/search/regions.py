"""Regions of a tensor graph that are polynomials, or what laws of functions are about.

for region in regions(graph):        # cut at what is no product, sum or view
    region.outputs                   # over placeholders: equal regions have one object for these
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import isfinite
from typing import Literal, NamedTuple

from weft.core.node import Graph, Node, Nodes, make, postorder, substitute
from weft.core.types import Symbolic, TensorType
from weft.scalar.monoid import MAX, MIN, SUM
from weft.search.masks import guarded, indicator, opened
from weft.search.reader import MONOIDS, NAMES
from weft.tensor.ops import Input, Map, Reduce, Scalar, View, position
from weft.tensor.rules_view import axes_of

Kind = Literal["masked", "functions", "plain"]
RING = ("add", "subtract", "multiply", "negate")
NODES = 150  # most nodes of a region
ROOTS = 16
FAR = 1024.0  # what adds a larger number to floats may do so to round them


class Region(NamedTuple):
    """Tensors that polynomials of others are; `outputs` has placeholders in place of `leaves`."""

    roots: Nodes
    leaves: Nodes
    outputs: Nodes
    inputs: Nodes  # the placeholders

    def here(self, outputs: Nodes) -> Nodes:
        """Other tensors over the placeholders, over this region's leaves."""
        return substitute(outputs, dict(zip(self.inputs, self.leaves, strict=True)))


def is_inside(node: Node, kind: Kind = "plain") -> bool:
    """Whether a node is a sum or a product of its operands, or moves their elements.

    In a masked region, a product with a condition is inside too. In one of functions these are, and
    maxima, but no sums of products, so that it does not reach from one layer to the next.
    """
    dtype = node.type.dtype if isinstance(node.type, TensorType) else None
    if dtype is None or dtype.kind not in ("float", "int", "uint") or dtype.compute is not dtype:
        return False
    if kind == "functions" and not dtype.is_float:
        return False  # the sum of integers may be less than each
    read = (n.type for n in (node, *node.args) if isinstance(n.type, TensorType))
    if any(isinstance(d, Symbolic) or d == 0 for t in read for d in t.shape):
        return False
    numbers = [float(a.op.value) for a in node.args if isinstance(a.op, Scalar)]
    if not all(map(isfinite, numbers)):
        return False
    match node.op:
        case Map(function=function):
            adds = dtype.is_float and function.name in ("add", "subtract")
            rounds = adds and any(abs(n) > FAR for n in numbers)
            product = kind == "masked" and guarded(node) is not None
            known = function.name in ((*RING, *NAMES) if kind == "functions" else RING)
            return (known and not rounds) or _is_by_number(node) or product
        case Reduce(monoid=monoid, finite=finite):
            if kind == "functions":
                return monoid in MONOIDS.values() and not finite and not _contracts(node)
            return monoid is SUM and not finite
        case View(valid=valid):
            return valid is None
        case Scalar(value=value):
            return isfinite(value)
        case _:
            return False


def _is_by_number(node: Node) -> bool:
    by = node.args[-1].op
    named = isinstance(node.op, Map) and node.op.function.name == "divide"
    return named and isinstance(by, Scalar) and isfinite(by.value) and by.value != 0


def _contracts(node: Node) -> bool:
    source = node.args[0]
    named = isinstance(source.op, Map) and source.op.function.name == "multiply"
    return named and not any(isinstance(a.op, Scalar) for a in source.args)


def regions(graph: Graph, kind: Kind = "plain") -> list[Region]:
    """The regions of a kind that have something to find, in order.

    masked     those with conditions on coordinates, which are read as factors: else they are leaves
    functions  those with logarithms of exponentials, exponentials of logarithms, maxima of sums
    """
    users = graph.users()
    inside = {n for n in users if is_inside(n, kind) and not isinstance(n.op, Scalar)}
    if kind == "functions":
        inside -= {n.args[0] for n in users if isinstance(n.op, Reduce) and _contracts(n)}
    sums: dict[Node, bool] = {}
    for n in users:
        sums[n] = n in inside and (isinstance(n.op, Reduce) or any(sums[a] for a in n.args))

    def is_cut(n: Node) -> bool:
        """Whether readers see a tensor, not what it is made of: else layers would join."""
        adds = isinstance(n.op, Map) and n.op.function.name in ("add", "subtract")
        return kind != "functions" and len(users[n]) > 1 and (adds or not sums[n])

    kept = set(graph.outputs)
    found: list[Region] = []
    order = {n: i for i, n in enumerate(users)}
    for nodes in _connected(users, inside, is_cut):
        own = set(nodes)
        for n in reversed(nodes) if kind == "functions" else ():  # what only repeats is no result
            if isinstance(n.op, View) and n not in kept and own.isdisjoint(users[n]):
                own.remove(n)
        nodes = [n for n in nodes if n in own]
        roots = [n for n in nodes if n in kept or is_cut(n) or not own.issuperset(users[n])]
        known = {a for n in nodes for a in n.args if not isinstance(a.op, Scalar)}
        leaves = [n for n in known if n not in own or is_cut(n)]
        small = len(nodes) <= NODES and len(roots) <= ROOTS
        if not small or not _may_find(kind, nodes) or not may_have(kind, (*nodes, *leaves)):
            continue
        open_ = {n for n in leaves if kind == "masked" and not sums[n]}
        region = _region(tuple(roots), tuple(sorted(leaves, key=order.__getitem__)), open_)
        found += [region] if open_ or kind == "functions" or worth(region.outputs) else []
    return found


def _connected(
    nodes: Iterable[Node], inside: Collection[Node], is_cut: Callable[[Node], bool]
) -> list[list[Node]]:
    """The nodes inside, in their order, by which of them read each other."""
    leader: dict[Node, Node] = {}

    def find(n: Node) -> Node:
        while leader.get(n, n) is not n:
            leader[n] = n = leader.get(leader[n], leader[n])
        return n

    for n in inside:
        for a in n.args:
            if a in inside and not is_cut(a):
                leader[find(a)] = find(n)
    members: dict[Node, list[Node]] = {}
    for n in nodes:
        if n in inside:
            members.setdefault(find(n), []).append(n)
    return [*members.values()]


def may_have(kind: Kind, nodes: Collection[Node]) -> bool:
    """Whether there may be something to find for that kind of region."""
    if kind == "functions":
        names = {n.op.function.name for n in nodes if isinstance(n.op, Map)}
        return names >= {"exp", "log"} or any(map(_repeats, nodes))
    return kind == "plain" or any(map(_has_condition, nodes))


def _may_find(kind: Kind, nodes: Collection[Node]) -> bool:
    return kind == "functions" or any(isinstance(n.op, Reduce) for n in nodes)


def _repeats(node: Node) -> bool:
    """Whether a maximum is of what is added to the same number along an axis."""
    if not isinstance(node.op, Reduce) or node.op.monoid not in (MAX, MIN):
        return False
    source, folded = node.args[0], {position(d) for d in node.op.axes}
    added = isinstance(source.op, Map) and source.op.function.name in ("add", "subtract")
    spread = (a.op for a in source.args if isinstance(a.op, View))
    return added and any(not folded <= axes_of(*v.index, v.valid) for v in spread)


def _has_condition(node: Node) -> bool:
    return indicator(node) is not None or guarded(node) is not None


def _region(roots: Nodes, leaves: Nodes, open_: Collection[Node]) -> Region:
    """The region over placeholders.

    A masked view is read as it stands, and so are conditions of leaves in `open_`: what these read
    is what is passed in.
    """
    below: dict[Node, Node] = {}

    def placed(n: Node) -> Node:
        return below.setdefault(n, make(Input(f"x{len(below)}", n.type)))

    seen: dict[Node, Node] = {}
    for leaf in leaves:
        if leaf in open_ and not isinstance(leaf.op, View):
            seen[leaf] = opened(leaf, placed)
        else:
            viewed = isinstance(leaf.op, View)
            seen[leaf] = make(leaf.op, placed(leaf.args[0])) if viewed else placed(leaf)
    bodies = tuple(_above(r, seen) for r in roots)
    return Region(roots, tuple(below), bodies, tuple(below.values()))


def _above(root: Node, seen: Mapping[Node, Node]) -> Node:
    """The root over placeholders; it may be a leaf of another root itself."""
    args = substitute(root.args, dict(seen))
    return make(root.op, *args)


def worth(outputs: Nodes) -> bool:
    """Whether a sum is over three factors or over another sum, or sums are added."""
    factors: dict[Node, int] = {}
    sums: dict[Node, bool] = {}
    for n in postorder(*outputs):
        below = any(sums[a] for a in n.args)
        count = sum(factors[a] for a in n.args)
        name = n.op.function.name if isinstance(n.op, Map) else ""
        if isinstance(n.op, Reduce) and (below or count > 2):
            return True
        if name in ("add", "subtract"):
            if sum(sums[a] for a in n.args) > 1:
                return True
            count = 1
        sums[n] = below or isinstance(n.op, Reduce)
        factors[n] = count if n.args and not isinstance(n.op, Reduce) else int(n.type.rank > 0)
        if isinstance(n.op, View) and n.op.valid is not None:
            factors[n] = 1
    return False


def is_turned(node: Node) -> bool:
    """Whether a product reads what a sum makes across: by its rows last, after what it sums over.

    (W' @ x')' @ V; the right factor of a product is read in either order.
    """
    if not isinstance(node.op, Reduce) or node.args[0].op.name != "map":
        return False
    rank, folded = node.args[0].type.rank, node.op.axes
    for factor in node.args[0].args:
        if not isinstance(factor.op, View) or not any(
            isinstance(n.op, Reduce) for n in postorder(factor)
        ):
            continue
        read = [d for t in factor.op.index for d in range(rank) if t is position(d)]
        rows = [d for d in read if d not in folded]
        columns = [d for d in range(rank) if d not in (*read, *folded)]
        left = rows and columns and max(rows) < min(columns)
        if left and len(rows) < len(read) and read[-1] == rows[-1]:
            return True
    return False
