"""The bytes that a placed block at the kernel level moves past a cache of some size.

Traffic(1 << 20, turns).block(body)     # {(x, frozenset()): 16384.0, ...}
As tile/price/traffic.py counts them at the tile level: where the working set of an iteration fits
the cache, the next one finds it there. But register loops are unrolled here, so that what their
copies share moves once, and what taps of a window read of one row is one piece.
"""

from collections.abc import Mapping, Sequence

from weft.core.node import Node
from weft.kernel.ops import VectorLoad, VectorStore
from weft.scalar.affine import linear
from weft.scalar.nest import Block, Buffer, For, Let, Load, Stmt, Store, free_variables
from weft.scalar.ops import Axis
from weft.scalar.sizes import hint

LINE = 64  # bytes of a cache line

Key = tuple[Buffer, frozenset[Node]]  # what is touched, and the axes that decide where
Touched = dict[Key, float]  # bytes
Pieces = dict[tuple[Buffer, frozenset[tuple[Node, int]]], list[tuple[int, int]]]


class Traffic:
    """Counts past a cache, with the iterations of each loop."""

    def __init__(self, cache: float, turns: Mapping[For, float]) -> None:
        self.cache, self.turns = cache, turns

    def buffers(self, body: Block) -> dict[Buffer, float]:
        """Bytes of each buffer."""
        total: dict[Buffer, float] = {}
        for (buffer, _), n in self.block(body).items():
            total[buffer] = total.get(buffer, 0.0) + n
        return total

    def block(self, stmts: Block) -> Touched:
        pieces: Pieces = {}
        parts: list[Touched] = []
        for stmt in stmts:
            if isinstance(stmt, For):
                parts.append(self.loop(stmt))
            elif (access := access_of(stmt)) is not None:
                buffer, index, lanes, stride = access
                terms, offset = linear(index)
                key = buffer, frozenset(terms.items())
                pieces.setdefault(key, []).append((offset, span(buffer, terms, lanes, stride)))
        own: Touched = {}
        for (buffer, terms), found in pieces.items():
            axes = free_variables(*(term for term, _ in terms))
            n = union(found) * buffer.type.dtype.bytes
            own[buffer, axes] = min(own.get((buffer, axes), 0.0) + n, hint(buffer.bytes))
        return self.together([own, *parts])

    def loop(self, stmt: For) -> Touched:
        inner, turns = self.block(stmt.body), self.turns.get(stmt, 0.0)
        stays = sum(inner.values()) <= self.cache
        start = free_variables(stmt.lo)
        total: Touched = {}
        for (buffer, axes), n in inner.items():
            moves = stmt.axis in axes
            key = buffer, (axes - {stmt.axis}) | start if moves else axes
            most = min(turns * n, max(n, hint(buffer.bytes))) if moves else n * min(turns, 1.0)
            total[key] = total.get(key, 0.0) + (most if stays else turns * n)
        return total

    def together(self, parts: Sequence[Touched]) -> Touched:
        """Of parts that run one after another; what they share moves once if all fit."""
        most: Touched = {}
        total: Touched = {}
        for part in parts:
            for key, n in part.items():
                most[key] = max(most.get(key, 0.0), n)
                total[key] = total.get(key, 0.0) + n
        return most if sum(most.values()) <= self.cache else total


def access_of(stmt: Stmt) -> tuple[Buffer, Node, int, int] | None:
    """The buffer, the index, the lanes and their distance of a load or a store."""
    part: object = stmt.term.op if isinstance(stmt, Let) else stmt
    given = stmt.term.args if isinstance(stmt, Let) else stmt.terms()  # the index comes first
    if isinstance(part, Load | Store):
        return part.buffer, given[0], 1, 1
    if isinstance(part, VectorLoad | VectorStore):
        return part.buffer, given[0], part.lanes, part.stride
    return None


def span(buffer: Buffer, terms: Mapping[Node, int], lanes: int, stride: int) -> int:
    """Elements that an access moves: with those of its lines that no loop goes to."""
    line = max(1, LINE // buffer.type.dtype.bytes)
    if stride == 0:
        return lanes * line
    if lanes > 1:
        return lanes * min(line, abs(stride))
    steps = [abs(n) for atom, n in terms.items() if isinstance(atom.op, Axis)]
    return min(line, min(steps, default=1))


def union(pieces: Sequence[tuple[int, int]]) -> int:
    """The elements that are in any of the pieces, each (start, length)."""
    total, end = 0, -(1 << 62)
    for start, length in sorted(pieces):
        total += max(0, start + length - max(start, end))
        end = max(end, start + length)
    return total
