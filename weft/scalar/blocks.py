"""Queries and rewrites of blocks of statements: terms, loads, accesses; mapping, substitution.

loads(*nodes(block))                        # (x, w): the buffers it reads
map_statements(block, change)               # change(statement), inner ones first
substitute_block(block, {a0: constant(0)})  # replaces a term wherever it occurs
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import TypeVar

from weft.core.node import Change, Node, make, op_of, postorder, rebuild
from weft.core.types import TensorType
from weft.scalar.index import simplify
from weft.scalar.intervals import Ranges
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Local, Stmt, Store, walk
from weft.scalar.ops import apply, constant
from weft.scalar.sizes import hint

Index = tuple[Node, ...]
S = TypeVar("S", bound=Stmt)


def nodes(block: Block) -> Iterator[Node]:
    """Every term of a block with all of its subterms, each once."""
    return postorder(*(t for s in walk(block) for t in s.terms()))


def loads(*roots: Node) -> tuple[Buffer, ...]:
    """The buffers that terms read, in order of appearance."""
    return tuple(dict.fromkeys(n.op.buffer for n in postorder(*roots) if isinstance(n.op, Load)))


def access(part: Stmt | Node) -> tuple[Buffer, Index] | None:
    """The buffer and the index that a store or a load accesses; None for anything else."""
    if isinstance(part, Node) and isinstance(part.op, Load):
        return part.op.buffer, part.args[: part.op.buffer.type.rank]
    return (part.buffer, part.index) if isinstance(part, Store) else None


def mask_of(part: Stmt | Node) -> Node | None:
    """The condition under which a store or a load accesses its buffer; None for always."""
    if isinstance(part, Node) and isinstance(part.op, Load):
        return part.args[part.op.buffer.type.rank] if part.op.masked else None
    return part.mask if isinstance(part, Store) else None


def address(buffer: Buffer, index: Index, ranges: Ranges) -> Node:
    """The element offset of an index, by the buffer's strides."""
    total: Node = constant(0)
    for term, stride, extent in zip(index, buffer.type.layout, buffer.type.shape, strict=True):
        if stride != 0 and extent != 1:
            total = apply("add", total, apply("multiply", term, constant(stride)))
    return simplify(total, ranges)


def masked(load: Node, condition: Node) -> Node:
    """A load where the condition holds as well; elsewhere it is 0, or what it was where masked."""
    op = op_of(load, Load)
    index, guard = load.args[: op.buffer.type.rank], load.args[op.buffer.type.rank :]
    both = apply("and", condition, guard[0]) if guard else condition
    other = guard[1] if guard else constant(0, load.type.dtype)
    return make(Load(op.buffer, True), *index, both, other)


def accesses(block: Block) -> list[tuple[Buffer, Index]]:
    """The accesses of every store of a block, then of every load."""
    parts: tuple[Stmt | Node, ...] = (*walk(block), *nodes(block))
    return [found for part in parts if (found := access(part)) is not None]


def loops_in(block: Block, *binds: str) -> Iterator[For]:
    """The loops of a block, inner ones as well: all of them, or those of these binds."""
    return (s for s in walk(block) if isinstance(s, For) and (not binds or s.bind in binds))


def locals_in(block: Block) -> list[Buffer]:
    """The buffers that a block declares, inside its loops as well."""
    return [s.buffer for s in walk(block) if isinstance(s, Local)]


def stored_in(block: Block) -> set[Buffer]:
    """The buffers that the stores of a block change."""
    return {s.buffer for s in walk(block) if isinstance(s, Store)}


def combining(block: Block) -> list[Store]:
    """The stores that combine values with what is there."""
    return [s for s in walk(block) if isinstance(s, Store) and s.combines]


def unpacks(read: Iterable[TensorType], made: int) -> bool:
    """Whether so many bytes are made of fewer, the most of them integers of a byte: of codes.

    They are not kept, even where constants alone decide them: what is quantised is to stay small.
    """
    each = [(hint(t.span) * t.dtype.bytes, t.dtype) for t in read]
    most, dtype = max(each, key=itemgetter(0), default=(0, None))
    codes = dtype is not None and dtype.is_integer and dtype.bytes == 1
    return most > 0 and codes and made > sum(size for size, _ in each)


def keeps(kernel: Kernel) -> bool:
    """Whether what it makes of constants is kept from call to call."""
    made = sum(hint(b.bytes) for b in kernel.outputs)
    return not unpacks((b.type for b in kernel.inputs), made)


def with_body(kernel: Kernel, body: Block, *more: Buffer) -> Kernel:
    """The kernel with another body, whose inputs are what that reads of them and of `more`."""
    read = loads(*nodes(body))
    return replace(kernel, body=body, inputs=tuple(b for b in (*kernel.inputs, *more) if b in read))


def reads_again(block: Block) -> bool:
    """Whether a block reads a buffer that it stores to."""
    return not stored_in(block).isdisjoint(loads(*nodes(block)))


def only_loop(block: Block) -> For | None:
    """The loop that is all of a block; None where it has other statements, or several."""
    stmt = block[0] if len(block) == 1 else None
    return stmt if isinstance(stmt, For) else None


def loops_from(stmt: For, follows: Callable[[For], bool] = lambda loop: True) -> list[For]:
    """The perfect nest of loops from `stmt` inwards, as far as `follows` holds."""
    loops = [stmt]
    while (inner := only_loop(loops[-1].body)) and follows(inner):
        loops.append(inner)
    return loops


def map_statements(block: Block, change: Callable[[Stmt], Stmt]) -> Block:
    """Rewrite every statement, a loop after the statements inside it."""
    inside = (  # one after the other: changes that take fresh names count on the order
        replace(s, body=map_statements(s.body, change)) if isinstance(s, For) else s for s in block
    )
    return tuple(map(change, inside))


def map_each(block: Block, kind: type[S], change: Callable[[S], Stmt]) -> Block:
    """Rewrite every statement of one kind, a loop after the statements inside it."""
    return map_statements(block, lambda s: change(s) if isinstance(s, kind) else s)


def map_loops(block: Block, change: Callable[[For], Stmt]) -> Block:
    """Rewrite the loops that stand in the block itself, not those inside them."""
    return tuple(change(s) if isinstance(s, For) else s for s in block)


def expand_loops(block: Block, change: Callable[[For], Iterable[Stmt]]) -> Block:
    """Replace each loop that stands in the block itself by statements, none or several."""
    return tuple(chain.from_iterable(change(s) if isinstance(s, For) else (s,) for s in block))


def map_outermost(block: Block, change: Callable[[For], Stmt | None]) -> Block:
    """Rewrite the outermost loops for which `change` gives one; inside the others it goes on."""

    def one(loop: For) -> Stmt:
        return change(loop) or replace(loop, body=map_outermost(loop.body, change))

    return map_loops(block, one)


def rebound(block: Block, old: str, new: str) -> Block:
    """The block with loops of bind `old` bound to `new`."""

    return map_each(block, For, lambda s: replace(s, bind=new) if s.bind == old else s)


def rewrite_block(block: Block, change: Change, memo: dict[Node, Node] | None = None) -> Block:
    """Rewrite every term of a block bottom-up, as `rebuild` does."""
    memo = {} if memo is None else memo
    return tuple(stmt.map_terms(lambda t: rebuild((t,), change, memo)[0]) for stmt in block)


def redirect(
    block: Block, buffers: Mapping[Buffer, Buffer], at: Callable[[Buffer, Index], Index]
) -> Block:
    """Replace buffers: an access of `old` at an index is one of buffers[old] at at(old, index)."""

    def load(node: Node) -> Node | None:
        touched = access(node)
        if touched is None or touched[0] not in buffers:
            return None
        rest = node.args[len(touched[1]) :]
        return make(replace(node.op, buffer=buffers[touched[0]]), *at(*touched), *rest)  # type: ignore[type-var]

    def store(stmt: Store) -> Store:
        if stmt.buffer not in buffers:
            return stmt
        return replace(stmt, buffer=buffers[stmt.buffer], index=at(stmt.buffer, stmt.index))

    return map_each(rewrite_block(block, load), Store, store)


def substitute_block(block: Block, values: Mapping[Node, Node]) -> Block:
    """Replace nodes by others wherever they occur in a block."""
    return rewrite_block(block, lambda n: None, dict(values))
