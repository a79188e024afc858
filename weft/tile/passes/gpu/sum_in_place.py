"""sum_in_place: starts the sum of a tile at what it is added to, where that is its own result.

before  for k1 in 0..64 by 64:  # reduce        after  for k1 in 0..64 by 64:  # reduce
            ... acc3 <- add(acc3, p * v)                   acc3 <- partial add(acc3, z[a0] * scale)
        z[a0] = z[a0] * scale + acc3                       ... acc3 <- add(acc3, p * v)
                                                       z[a0] = acc3

A thread of attention has half of its registers in results: it has them once, not twice.
"""

from dataclasses import replace

from weft.core.node import Node, make, postorder
from weft.scalar.monoid import SUM
from weft.scalar.nest import Kernel, Load, Stmt, Store, Update, free_variables
from weft.scalar.ops import function_of
from weft.targets.gpu import GPU
from weft.tile.analysis.access import trips
from weft.tile.analysis.tiles import Tile, on_tiles
from weft.tile.moves.loops import Labels


def sum_in_place(kernel: Kernel, target: GPU) -> Kernel:
    """Start every sum that runs once at the element that its tile then stores again."""

    def in_place(tile: Tile, labels: Labels) -> Tile:
        head = tile.sum
        if head is None or len(head.folds) != 1 or head.extent is None or trips(head) != 1:
            return tile
        (fold,), at = head.folds, tile.body.index(head)
        store = tile.body[at + 1] if len(tile.body) == at + 2 else None
        first = before(store, fold.accs[0])
        if fold.monoid is not SUM or first is None or not isinstance(store, Store):
            return tile
        started = replace(head, body=(Update(fold, (first,), partial=True), *head.body))
        store = replace(store, value=fold.accs[0])
        return replace(tile, body=(*tile.body[:at], started, store))

    return on_tiles(kernel, in_place)


def before(stmt: Stmt | None, acc: Node) -> Node | None:
    """What a sum is added to, if the statement stores both together over a part of the former."""
    if not isinstance(stmt, Store) or stmt.mask is not None or function_of(stmt.value) != "add":
        return None
    others = [term for term in stmt.value.args if term is not acc]
    if len(others) != 1 or acc in free_variables(others[0]):
        return None
    own = make(Load(stmt.buffer), *stmt.index)
    return others[0] if own in postorder(others[0]) else None
