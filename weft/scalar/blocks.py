"""What blocks of statements touch and compute, and blocks rewritten: what passes are written in.

loads(*nodes(block))                        # (x, w): the buffers it reads
map_statements(block, change)               # change(statement), inner ones first
substitute_block(block, {a0: constant(0)})  # a term for another wherever it stands
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from weft.core.node import Node, postorder, rebuild
from weft.scalar.nest import Block, Buffer, For, Load, Stmt, Store, walk

Index = tuple[Node, ...]


def nodes(block: Block) -> Iterator[Node]:
    """Every term of a block and all it is made of, each once."""
    return postorder(*(t for s in walk(block) for t in s.terms()))


def loads(*roots: Node) -> tuple[Buffer, ...]:
    """Buffers that terms read, in order of appearance."""
    found = (n.op.buffer for n in postorder(*roots) if isinstance(n.op, Load))
    return tuple(dict.fromkeys(found))


def access(part: Stmt | Node) -> tuple[Buffer, Index] | None:
    """What a store or a load touches, and where; None for all else."""
    if isinstance(part, Node) and isinstance(part.op, Load):
        return part.op.buffer, part.args[: part.op.buffer.type.rank]
    return (part.buffer, part.index) if isinstance(part, Store) else None


def accesses(block: Block) -> list[tuple[Buffer, Index]]:
    """Of every store of a block, then of every load."""
    parts: tuple[Stmt | Node, ...] = (*walk(block), *nodes(block))
    return [found for part in parts if (found := access(part)) is not None]


def map_statements(block: Block, change: Callable[[Stmt], Stmt]) -> Block:
    """Rewrite every statement, a loop after what is inside it."""
    inside = (
        replace(s, body=map_statements(s.body, change)) if isinstance(s, For) else s for s in block
    )
    return tuple(map(change, inside))


def rebound(block: Block, old: str, new: str) -> Block:
    """The block with loops that are bound to one thing bound to another."""

    def one(stmt: Stmt) -> Stmt:
        return replace(stmt, bind=new) if isinstance(stmt, For) and stmt.bind == old else stmt

    return map_statements(block, one)


def rewrite_block(
    block: Block, change: Callable[[Node], Node | None], memo: dict[Node, Node] | None = None
) -> Block:
    """Rewrite every term of a block bottom-up, as `rebuild` does."""
    memo = {} if memo is None else memo
    return tuple(stmt.map_terms(lambda t: rebuild((t,), change, memo)[0]) for stmt in block)


def substitute_block(block: Block, values: Mapping[Node, Node]) -> Block:
    """Replace nodes by others wherever they stand in a block."""
    return rewrite_block(block, lambda n: None, dict(values))
