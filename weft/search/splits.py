"""Axes that index maps divide, read as two: the law of splits, applied as a region is read.

sum_k f(k // n, k % n, k) = sum_a sum_b f(a, b, a * n + b), where n divides the extent of k
kron(A, B) @ x = sum_k A[i // p, k // n] B[i % p, k % n] x[k] = sum_ab A[c, a] B[d, b] x[a * n + b]

Proof: k -> (k // n, k % n) is one to one, from the positions along k to all pairs of a < extent / n
and b < n, as n divides the extent; its inverse is a * n + b. So both sums have the same addends. An
axis of a result is split in the same way: its elements are only named by two numbers.
"""

from collections.abc import Iterable, Mapping

from weft.core.node import Node, postorder
from weft.scalar.ops import Axis, apply, axis, constant, function_of, value_of

Splits = Mapping[Node, int]  # of an axis, the extent of its inner part


def divided(terms: Iterable[Node], extents: Mapping[Node, int]) -> dict[Node, int]:
    """The axes that terms divide by a number, and that number."""
    found: dict[Node, int] = {}
    for n in postorder(*terms):
        if function_of(n) in ("floordiv", "floormod") and isinstance(n.args[0].op, Axis):
            a, by = n.args[0], value_of(n.args[1])
            if a in extents and by is not None and splits_evenly(extents[a], int(by)):
                found.setdefault(a, int(by))
    return found


def splits_evenly(extent: int, by: int) -> bool:
    return 1 < by < extent and extent % by == 0


def parts(a: Node) -> tuple[Node, Node]:
    """The names of the outer and the inner part of an axis."""
    return axis(f"{a.op.label}.0"), axis(f"{a.op.label}.1")  # type: ignore[attr-defined]


def joined(outer: Node, inner: Node, by: int) -> Node:
    return apply("add", apply("multiply", outer, constant(by)), inner)


def coordinates(a: Node, at: Node, splits: Splits) -> dict[Node, Node]:
    """The coordinate along each part of an axis, or along itself if it is whole."""
    if a not in splits:
        return {a: at}
    by = constant(splits[a])
    outer, inner = parts(a)
    found = coordinates(outer, apply("floordiv", at, by), splits)
    return found | coordinates(inner, apply("floormod", at, by), splits)
