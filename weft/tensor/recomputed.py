"""Sums of floats that kernels would compute again, each in an order of its own: they get a buffer.

store_recomputed(groups)

before  kernel y: max of x @ w, then exp(x @ w - max)      # two orders: the greatest is not 0
after   kernel t: x @ w    kernel y: max of t, then exp(t - max)

A program that uses a value twice may subtract one use from the other, or compare them. A function
is rounded alike wherever it is computed; a sum is not, as each loop adds in its own order.
"""

from collections import defaultdict
from collections.abc import Mapping

from weft.core.node import Node
from weft.scalar.nest import Buffer
from weft.tensor.groups import Groups, Kernel
from weft.tensor.lower import elements
from weft.tensor.nests import variables
from weft.tensor.ops import ALONE, Map, Reduce, View
from weft.tensor.recurrence import CALLS
from weft.tensor.terms import Terms

EXACT = ("maximum", "minimum")  # folds of floats that are equal in any order


def store_recomputed(groups: Groups) -> None:
    """Store each rounded fold that is computed in several loops, readers before operands."""
    times: dict[Node, dict[Kernel, int]] = defaultdict(dict)  # loops that compute a fold
    replaced: set[Kernel] = set()
    users = groups.graph.users()

    def count(kernel: Kernel) -> None:
        for node, loops in _rounded(kernel, groups).items():
            times[node][kernel] = len(loops)

    for kernel in groups.all():
        count(kernel)
    for node in sorted(times, key=groups.order.__getitem__, reverse=True):
        inside = {k: n for k, n in times[node].items() if k not in replaced}
        if sum(inside.values()) > 1:
            replaced.update(inside)
            for outputs in ((_alone(node, users),), *(k.outputs for k in inside)):
                groups.put(kernel := groups.kernel(outputs))
                count(kernel)


def recomputes(kernel: Kernel, groups: Groups) -> bool:
    """Whether the kernel computes a rounded fold in several loops."""
    return any(len(loops) > 1 for loops in _rounded(kernel, groups).values())


def _rounded(kernel: Kernel, groups: Groups) -> dict[Node, set[frozenset[Node]]]:
    """The rounded folds that a kernel computes: the axes of each loop that needs one."""
    first = kernel.outputs[0]
    alone = [(a,) for a in first.args] if isinstance(first.op, ALONE) else []
    found: dict[Node, set[frozenset[Node]]] = defaultdict(set)
    buffers = {n: Buffer(f"t{groups.order[n]}", n.type) for n in kernel.reads}
    depends: dict[Node, frozenset[Node]] = {}
    for outputs in () if isinstance(first.op, CALLS) else alone or [kernel.outputs]:
        ranges, wanted = elements(outputs)
        terms = Terms(buffers, ranges)
        for node, index in wanted:
            terms.of(node, index)
        for (node, _, _), term in terms.memo.items():
            if _is_rounded(node):
                found[node].add(variables(term, depends))
    return found


def _is_rounded(node: Node) -> bool:
    reduces = isinstance(node.op, Reduce) and node.op.monoid.function not in EXACT
    return reduces and node.type.dtype.is_float


def _alone(node: Node, users: Mapping[Node, list[Node]]) -> Node:
    """The last of the maps and views that alone use a node, one after the other."""
    while len(users[node]) == 1 and isinstance(users[node][0].op, Map | View):
        (user,) = users[node]
        if user.type.size != node.type.size:
            break
        node = user
    return node
