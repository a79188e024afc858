"""Terms of a GPU kernel that need no variable: they are written where they are used.

packed(kernel.body)         # elements that only stand beside others in a vector
"""

from weft.core.node import Node
from weft.emit.spelling import register
from weft.kernel.ops import Extract, Pack
from weft.scalar.blocks import nodes
from weft.scalar.nest import Block, Load, walk


def bare(term: Node) -> bool:
    """The terms that need no variable."""
    lane = isinstance(term.op, Extract) and register(term.type.dtype) is term.type.dtype
    return lane or isinstance(term.op, Pack)


def packed(body: Block) -> set[Node]:
    """The elements that are only read to be packed in a vector: they need no variable."""
    uses = [(a, n.op) for n in nodes(body) for a in n.args]
    reads = {a for a, op in uses if isinstance(a.op, Load) and isinstance(op, Pack)}
    reads -= {a for a, op in uses if not isinstance(op, Pack)}
    reads -= {t for s in walk(body) for t in s.terms()}
    return {a for a in reads if register(a.type.dtype).is_float and not a.op.masked}  # type: ignore[attr-defined]
