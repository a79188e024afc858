"""How many consecutive elements along an axis one thread can take, so that its accesses are wide.

strip_width(accesses, a0, 4, known)     # 4 where all are contiguous along a0, aligned, in one piece
"""

from collections.abc import Iterable

from weft.core.node import Node, postorder, substitute
from weft.scalar.affine import Ranges
from weft.scalar.blocks import access, address, mask_of
from weft.scalar.divisors import Divisors, condition_of_all, divisor
from weft.scalar.nest import Block, Buffer, Stmt, walk
from weft.scalar.ops import apply, axis, constant
from weft.tile.analysis.access import stride_along

WIDEST = 16  # bytes of an access

Access = tuple[Buffer, tuple[Node, ...], Node | None]  # what is touched, where, on what condition


def accesses_of(terms: Iterable[Node], block: Block = ()) -> list[Access]:
    """The loads of some terms, and the stores of a block."""
    parts: list[Stmt | Node] = [*walk(block), *postorder(*terms)]
    return [(*found, mask_of(part)) for part in parts if (found := access(part)) is not None]


def strip_width(accesses: Iterable[Access], along: Node, known: Divisors, ranges: Ranges) -> int:
    """The widest strip, in elements, that every access along the axis can take at once."""
    moving: list[tuple[Node, Node | None, int]] = []
    for buffer, index, mask in accesses:
        where = address(buffer, index, ranges)
        if along in postorder(where):
            if stride_along(where, along) != 1:
                return 1
            moving.append((where, mask, buffer.type.dtype.bytes))
    width = WIDEST // min((size for *_, size in moving), default=WIDEST)
    while width > 1 and not all(_whole(*access[:2], along, width, known) for access in moving):
        width //= 2
    return width


def _whole(where: Node, mask: Node | None, along: Node, width: int, known: Divisors) -> bool:
    """Whether a strip's access is aligned, and its mask uniform over the strip."""
    start = axis("strip")
    with_start = {**known, start: width}
    if divisor(substitute((where,), {along: start})[0], with_start) % width:
        return False
    if mask is None or along not in postorder(mask):
        return True
    at = (apply("add", start, constant(i)) for i in range(width))
    forms = (substitute((mask,), {along: n})[0] for n in at)
    return len({condition_of_all(form, with_start) for form in forms}) == 1
