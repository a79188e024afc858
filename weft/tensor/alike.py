"""What decides the price of a kernel: kernels that are alike by this are lowered and priced once.

prices = Prices()                       # microseconds by one function, for graphs that share them
prices[prices.key(nodes, outputs)]      # KeyError for a kernel like none before

alike   a + f(b) + c        a + b + f(c)        # sums over the steps of an unrolled loop
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence

from weft.core.node import Node
from weft.scalar.affine import linear, slack
from weft.scalar.ops import function_of
from weft.tensor import ops

Users = Mapping[Node, Sequence[Node]]  # in one kernel


class Prices(dict[Hashable, float]):
    """Microseconds of kernels, by their keys."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[Hashable, int] = {}  # of labels: equal ones have the same
        self.kinds: dict[Node, int] = {}  # numbers of what nodes are without their operands

    def key(self, nodes: Mapping[Node, bool], outputs: Sequence[Node]) -> Hashable:
        """The key of the kernel with these nodes, operands first, True for each that it reads.

        A label is a node's kind with the labels of its operands. The key has those of all nodes,
        those of the users of each read, and those of the outputs. Nodes inside a chain of one
        function (a sum of many terms, the parts of a `cat`) have none: its last node has the
        labels of all operands, in any order. No value of a float counts, no offset of a slice.
        """
        users: dict[Node, list[Node]] = defaultdict(list)
        for node, read in nodes.items():
            for a in () if read else dict.fromkeys(node.args):
                users[a].append(node)
        made = {n for n, read in nodes.items() if not read}
        inner = {n for n in made.difference(outputs) if _is_inside(n, users[n])}
        labels = self._labels(nodes, inner)
        last: dict[Node, Node] = {}  # of the chain that a node is in
        for node in reversed([*nodes]):
            last[node] = last[users[node][0]] if node in inner else node
        reads = ([labels[n], *sorted(labels[last[u]] for u in users[n])] for n in nodes if nodes[n])
        own = tuple(sorted(labels.values())), tuple(sorted(map(tuple, reads)))
        return (*own, tuple(labels[o] for o in outputs))

    def _labels(self, nodes: Mapping[Node, bool], inner: Collection[Node]) -> dict[Node, int]:
        labels: dict[Node, int] = {}
        operands: dict[Node, list[int]] = {}  # labels of those of a chain, up to a node inside it
        for node, read in nodes.items():
            if read:
                labels[node] = self._number(node.type)
                continue
            found = [operands.pop(a) if a in inner else [labels[a]] for a in node.args]
            chain = isinstance(node.op, ops.Map)
            first, *rest = sorted(found, key=len, reverse=True) if chain else found or [[]]
            for others in rest:
                first += others
            if node in inner:
                operands[node] = first
                continue
            below = sorted(first) if chain else first
            labels[node] = self._number((self._kind(node), *below))
        return labels

    def _number(self, label: Hashable) -> int:
        return self.numbers.setdefault(label, len(self.numbers))

    def _kind(self, node: Node) -> int:
        if node not in self.kinds:
            self.kinds[node] = self._number((_kind(node), node.type))
        return self.kinds[node]


def _is_inside(node: Node, users: Sequence[Node]) -> bool:
    """Whether a node is inside a chain: its one user applies the same function to it, once."""
    if len(users) != 1 or not isinstance(node.op, ops.Map):
        return False
    return users[0].op == node.op and users[0].type == node.type and users[0].args.count(node) == 1


def _kind(node: Node) -> Hashable:
    """The part of an op that decides a price: not a float's value, nor an offset."""
    op = node.op
    if isinstance(op, ops.Scalar) and op.dtype.is_float:
        return ops.Scalar
    if isinstance(op, ops.View):
        valid = op.valid and _condition(op.valid)
        return ops.View, tuple(frozenset(linear(t)[0].items()) for t in op.index), valid
    return (ops.Index, _condition(op.term)) if isinstance(op, ops.Index) else op


def _condition(term: Node) -> Hashable:
    """A condition on coordinates without the constants that bound them."""
    if function_of(term) in ("and", "or", "not"):
        return function_of(term), *map(_condition, term.args)
    form = slack(term)
    return term if form is None else frozenset(form[0].items())
