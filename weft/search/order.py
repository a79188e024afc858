"""The order of a product of many factors under a sum: which two to multiply first.

plan([{i, k}, {k, j}, {j}], kept={i}, extents)      # (0, (1, 2)): A @ (B @ c)

Exact for up to EXACT factors, by dynamic programming over their subsets; beyond, the pair that is
cheapest now is taken, again and again.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from math import prod
from typing import Any

from weft.core.node import Node
from weft.scalar.sizes import hint

EXACT = 8
STORED = 16  # multiply-adds that one element of an intermediate costs, which is written and read

Tree = Any  # the number of a factor, or two trees
Axes = frozenset[Node]


class Orders:
    """Costs of contracting sets of factors; sets of these and of axes are bit masks."""

    def __init__(
        self, free: Sequence[Axes], kept: Axes, extents: Mapping[Node, Any], once: Iterable[int]
    ) -> None:
        bits = {a: 1 << i for i, a in enumerate(kept.union(*free))}
        self.free = [sum(map(bits.__getitem__, f)) for f in free]
        self.kept = sum(map(bits.__getitem__, kept))
        self.extents = [hint(extents[a]) for a in bits]
        self.all = (1 << len(free)) - 1
        self.once = sum(1 << i for i in once)
        self.result, self.size = cache(self._result), cache(self._size)

    def _result(self, members: int) -> int:
        """The axes of the product of some factors once those that no other one has are summed."""
        own, rest = 0, self.kept
        for i, f in enumerate(self.free):
            own, rest = (own | f, rest) if members >> i & 1 else (own, rest | f)
        return own & rest

    def _size(self, axes: int) -> int:
        return prod(n for i, n in enumerate(self.extents) if axes >> i & 1)

    def join(self, a: int, b: int) -> int:
        """The cost of multiplying two results, and of summing what can then be."""
        if not (a | b) & ~self.once:
            return 0
        space = self.size(self.result(a) | self.result(b))
        return space + STORED * self.size(self.result(a | b))


def plan(
    free: Sequence[Axes], kept: Axes, extents: Mapping[Node, Any], once: Iterable[int] = ()
) -> Tree:
    """The cheapest order, as a tree over the numbers of the factors; constants `once` are free."""
    orders = Orders(free, kept, extents, once)
    return _exact(orders) if len(free) <= EXACT else _greedy(orders)


def _exact(orders: Orders) -> Tree:
    best: dict[int, tuple[int, Tree]] = {1 << i: (0, i) for i in range(len(orders.free))}
    for members in range(1, orders.all + 1):
        part = (members - 1) & members
        found = best.get(members)
        while part > members ^ part:  # every split into two subsets, the larger number first
            rest = members ^ part
            cost = best[part][0] + best[rest][0]
            if found is None or cost < found[0]:
                cost += orders.join(part, rest)
                if found is None or cost < found[0]:
                    found = cost, (best[rest][1], best[part][1])
            part = (part - 1) & members
        assert found is not None
        best[members] = found
    return best[orders.all][1]


def _greedy(orders: Orders) -> Tree:
    trees: dict[int, Tree] = {1 << i: i for i in range(len(orders.free))}
    cost = cache(orders.join)
    while len(trees) > 1:
        a, b = min(combinations(trees, 2), key=lambda pair: cost(*pair))
        trees[a | b] = (trees.pop(a), trees.pop(b))
    return trees[orders.all]
