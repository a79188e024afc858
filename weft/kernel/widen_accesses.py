"""widen_accesses: merges a thread's accesses of consecutive elements, up to 16 bytes.

before  v0 = load x[a0 * 2]             after  v0 = load{2} x[a0 * 2]
        v1 = load x[a0 * 2 + 1]                v1 = pack(relu(extract{0}(v0)), ...)
        y[a0 * 2] = relu(v0)                   y{2}[a0 * 2] = v1
        y[a0 * 2 + 1] = relu(v1)

It merges elements that are consecutive, aligned to the width of the merged access, and under one
mask, whatever views, pads and slices they come from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from weft.core.node import Node, make, postorder
from weft.kernel.ops import Extract, Pack, VectorLoad, VectorStore
from weft.scalar.affine import linear, plus
from weft.scalar.blocks import loads, map_loops, nodes, rewrite_block, substitute_block
from weft.scalar.divisors import Divisors, condition_of_all, of_axis, of_terms
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Running, Stmt, Store, Update, walk

BYTES = 16  # of the widest access
T = TypeVar("T")
Place = tuple[object, ...]  # of a run of elements: all but how far along it one is


def widen_accesses(kernel: Kernel, target: object) -> Kernel:
    """Widen loads and stores in every block of the kernel."""
    return replace(kernel, body=_block(kernel.body, {}))


def _block(block: Block, known: Divisors) -> Block:
    wide = _wide_loads(block, known)

    def inside(loop: For) -> For:
        return replace(loop, body=_block(loop.body, {**known, loop.axis: of_axis(loop, known)}))

    block = _whole(substitute_block(block, wide)) if wide else block
    return tuple(_wide_stores(map_loops(block, inside), known))


def _place(buffer: Buffer, index: Node, rest: Place, known: Divisors) -> tuple[Place, int]:
    terms, offset = linear(index)
    return (buffer, frozenset(terms.items()), of_terms(terms, known), *rest), offset


def _runs(groups: Mapping[Place, dict[int, T]]) -> Iterator[tuple[dict[int, T], int, int]]:
    """The start and length of each run that one access can take, longest first, in its group."""
    for (buffer, _, whole, *_), group in groups.items():
        assert isinstance(buffer, Buffer) and isinstance(whole, int)
        lanes = 1 if buffer.space == "local" else BYTES // buffer.type.dtype.bytes
        left = set(group)
        while lanes > 1:
            for first in sorted(left):
                wanted = range(first, first + lanes)
                if first % lanes == 0 and whole % lanes == 0 and left.issuperset(wanted):
                    left.difference_update(wanted)
                    yield group, first, lanes
            lanes //= 2


def _wide_loads(block: Block, known: Divisors) -> dict[Node, Node]:
    """The wide loads, by the single loads that they replace."""
    groups: dict[Place, dict[int, Node]] = {}
    stmts = [s for s in block if not isinstance(s, For)]
    changed = _changed(block)
    for term in postorder(*(t for s in stmts for t in s.terms())):
        if isinstance(term.op, Load) and term not in changed:
            guard = [condition_of_all(term.args[1], known), term.args[2]] if term.op.masked else []
            place, at = _place(term.op.buffer, term.args[0], tuple(guard), known)
            groups.setdefault(place, {})[at] = term
    wide: dict[Node, Node] = {}
    for group, first, lanes in _runs(groups):
        op, args = group[first].op, group[first].args
        load = make(VectorLoad(op.buffer, lanes, masked=op.masked), *args)  # type: ignore[attr-defined]
        wide.update((group[first + i], make(Extract(i), load)) for i in range(lanes))
    return wide


def _changed(block: Block) -> set[Node]:
    """Loads of what statements before them in the block may have stored."""
    found: set[Node] = set()
    inside = {s.buffer for s in walk(block) if isinstance(s, Store | VectorStore)}
    inside -= {s.buffer for s in block if isinstance(s, Store)}
    stored: list[Store] = []
    for stmt in block:
        for term in postorder(*stmt.terms()) if inside or stored else ():
            if isinstance(term.op, Load):
                same = (s for s in stored if s.buffer == term.op.buffer)
                again = any(not _apart(s.index[0], term.args[0]) for s in same)
                if again or term.op.buffer in inside:
                    found.add(term)
        if isinstance(stmt, Store):
            stored.append(stmt)
    return found


def _apart(one: Node, other: Node) -> bool:
    """Whether two indices are never equal."""
    terms, distance = plus(linear(one), linear(other), -1)
    return not terms and distance != 0


def _wide_stores(stmts: Block, known: Divisors) -> Iterator[Stmt]:
    """The statements, with stores that follow each other joined, folds among them before them."""
    group: list[Store] = []
    for stmt in stmts:
        if not _may_join(stmt, group):
            yield from _joined(group, known)
            group = []
        if isinstance(stmt, Store) and not stmt.combines:
            group.append(stmt)
        else:
            yield stmt
    yield from _joined(group, known)


def _may_join(stmt: Stmt, stores: list[Store]) -> bool:
    """Whether a store is one of those in any order, or a fold may go before them.

    It reads nothing that they write; a fold changes nothing that they store.
    """
    if not isinstance(stmt, Store | Update) or (isinstance(stmt, Store) and stmt.combines):
        return False
    changes = isinstance(stmt, Update) and any(isinstance(n.op, Running) for n in nodes((*stores,)))
    read = {getattr(n.op, "buffer", None) for n in postorder(*stmt.terms())}
    return read.isdisjoint(s.buffer for s in stores) and not changes


def _joined(stores: list[Store], known: Divisors) -> Iterator[Stmt]:
    groups: dict[Place, dict[int, Store]] = {}
    for s in stores:
        guard = () if s.mask is None else (condition_of_all(s.mask, known),)
        place, at = _place(s.buffer, s.index[0], (s.how, *guard), known)
        groups.setdefault(place, {})[at] = s
    read = loads(*(t for s in stores for t in s.terms()))
    twice = sum(map(len, groups.values())) < len(stores)  # one element: in order
    for group, first, lanes in _runs({} if twice else groups):
        one = group[first]
        if one.buffer in read:
            continue
        value = _packed([group.pop(first + i).value for i in range(lanes)])
        yield VectorStore(one.buffer, one.index[0], value, lanes, 1, None, one.mask, one.how)
    left = {id(s) for found in groups.values() for s in found.values()}
    yield from (s for s in stores if twice or id(s) in left)


def _whole(block: Block) -> Block:
    """Vectors of all lanes of a vector, in order, are that vector."""

    def change(node: Node) -> Node | None:
        return _packed(list(node.args)) if isinstance(node.op, Pack) else None

    return rewrite_block(block, change)


def _packed(values: list[Node]) -> Node:
    """The values as one vector: the one they are all lanes of, or a new one."""
    source = values[0].args[0] if isinstance(values[0].op, Extract) else None
    if source is None or source.type.lanes != len(values):
        return make(Pack(), *values)
    same = all(v is make(Extract(i), source) for i, v in enumerate(values))
    return source if same else make(Pack(), *values)
