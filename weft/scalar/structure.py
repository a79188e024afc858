"""Programs whatever their names: parts replaced by others, kernels compared and kept once.

substituted(block, {x: y})            # the block over another buffer, at the same indices
substituted(block, {total: own})      # its loops and updates with another fold
substituted(block, {a0: axis("a7")})  # the terms, and the loop itself
structure(a) == structure(b)          # the same loops over buffers of the same types
renumber(a.body)                      # loops a0, a1, ..., accumulators acc0, ...
unique = Unique(program)              # unique.program has one kernel of each structure
unique.restore(scheduled)             # every kernel again, as the first of its structure
unique.starts["add_2"]                # (0, 128): the elements at which its inputs begin
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import count
from operator import mul
from typing import Any, TypeVar

from weft.core.node import Node, Op, bottom_up, make, postorder, substitute
from weft.core.types import DType
from weft.scalar.affine import from_linear, linear, plus
from weft.scalar.blocks import address, locals_in, nodes, redirect, rewrite_block
from weft.scalar.monoid import Monoid
from weft.scalar.nest import (
    Block,
    Buffer,
    Fold,
    For,
    Kernel,
    Load,
    Program,
    Rows,
    Stmt,
    Store,
    Update,
)
from weft.scalar.ops import PACKS, SAFE, Axis, Function, apply, axis, constant, function_of

T = TypeVar("T")
Place = tuple[int, ...]  # coordinates of an element

SHARED = Op | Buffer | Fold  # values that occur often: each is looked at once
WHOLE = type | DType | Function | Monoid  # nothing inside these is ever replaced


class Substitution:
    """Replaces parts in values of every kind that programs are made of; the others stay as is."""

    def __init__(self, parts: Mapping[Any, Any]) -> None:
        self.known: dict[Any, Any] = dict(parts)

    def of(self, value: Any) -> Any:
        if isinstance(value, Node):
            return bottom_up(value, self.known, self.node)
        if isinstance(value, tuple):
            return tuple(map(self.of, value))
        if isinstance(value, SHARED):
            if value not in self.known:
                self.known[value] = self.inside(value)
            return self.known[value]
        inside = is_dataclass(value) and not isinstance(value, WHOLE)
        return self.inside(value) if inside else value

    def node(self, node: Node) -> Node:
        return make(self.of(node.op), *(self.known[a] for a in node.args))

    def inside(self, value: T) -> T:
        """A dataclass with its fields changed; itself where none is."""
        old = {f.name: getattr(value, f.name) for f in fields(value) if f.init}  # type: ignore[arg-type]
        new = {name: self.of(part) for name, part in old.items()}
        return value if new == old else replace(value, **new)  # type: ignore[type-var]


def substituted(value: T, parts: Mapping[Any, Any]) -> T:
    """A part of a program with others for some of its buffers, folds or terms."""
    return Substitution(parts).of(value) if parts else value


# --- comparing ------------------------------------------------------------------------------------


def renumber(
    body: Block, axes: Iterator[int] | None = None, accs: Iterator[int] | None = None
) -> Block:
    """Name the loops a0, a1, ... and the accumulators acc0, acc1, ... in order of appearance.

    All names differ. Blocks of one kernel take their numbers from the same `axes` and `accs`.
    """
    axes, accs = axes or count(), accs or count()

    def fresh(fold: Fold) -> Fold:
        return replace(fold, labels=tuple(f"acc{next(accs)}" for _ in fold.labels))

    def block(stmts: Block, names: dict[Node, Node], folds: dict[Fold, Fold]) -> Block:
        return tuple(statement(s, names, folds) for s in stmts)

    def statement(stmt: Stmt, names: dict[Node, Node], folds: dict[Fold, Fold]) -> Stmt:
        if isinstance(stmt, For):
            mine = {f: fresh(f) for f in stmt.folds}
            for old, new in mine.items():
                both = zip((*old.accs, *old.running), (*new.accs, *new.running), strict=True)
                names.update(both)  # read inside the loop and after it
            variable = axis(f"a{next(axes)}")
            lo, hi = substitute((stmt.lo, stmt.hi), names)
            inner = block(stmt.body, {**names, stmt.axis: variable}, folds | mine)
            named = tuple(mine.values())
            return replace(stmt, axis=variable, lo=lo, hi=hi, body=inner, folds=named)
        stmt = stmt.map_terms(lambda t: substitute((t,), names)[0])
        known = isinstance(stmt, Update) and stmt.fold in folds
        return replace(stmt, fold=folds[stmt.fold]) if known else stmt  # type: ignore[attr-defined]

    return block(body, {}, {})


def structure(kernel: Kernel) -> tuple[Any, ...]:
    """A hashable value, equal for kernels that differ only in the names of buffers."""
    buffers = (*kernel.inputs, *kernel.outputs)
    numbered = enumerate((*buffers, *locals_in(kernel.body)))
    plain = Substitution({b: Buffer(f"b{i}", b.type, b.space) for i, b in numbered})
    number: dict[Node, int] = {}
    rows: list[tuple[Any, ...]] = []

    def key(value: Any) -> Any:
        """Terms as the numbers of their rows, statements as their fields."""
        if isinstance(value, Node):
            for node in postorder(value):
                if node not in number:
                    number[node] = len(rows)
                    rows.append((plain.of(node.op), *(number[a] for a in node.args)))
            return number[value]
        if isinstance(value, tuple):
            return tuple(map(key, value))
        if isinstance(value, Buffer):
            return plain.of(value)
        if isinstance(value, Stmt):
            return (type(value).__name__, *map(key, _parts(value)))
        return value

    body = key(kernel.body)
    return (len(kernel.inputs), tuple(b.type for b in buffers), body, tuple(rows))


def is_same(one: Any, other: Any) -> bool:
    """Whether statements, or blocks of them, are equal to the name."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, Stmt) and type(one) is type(other):
        return one is other or is_same(_parts(one), _parts(other))
    return one == other


def _parts(stmt: Stmt) -> tuple[Any, ...]:
    return tuple(getattr(stmt, f.name) for f in fields(stmt))  # type: ignore[arg-type]


def is_checked(block: Block) -> bool:
    """Whether the block has a checked function, which may meet a fault."""
    return any(getattr(n.op, "function", None) in SAFE for n in nodes(block))


def _only_store(body: Block) -> Store | None:
    """The store of a nest of loops that has nothing else in it."""
    while len(body) == 1 and isinstance(body[0], For):
        body = body[0].body
    return body[0] if len(body) == 1 and isinstance(body[0], Store) else None


def copies(body: Block) -> bool:
    """Whether a nest stores what it reads, each element where it is in memory already."""
    store = _only_store(body)
    plain = store is not None and store.mask is None and not store.combines
    if store is None or not plain or not isinstance(store.value.op, Load) or store.value.op.masked:
        return False
    source, to = store.value.op.buffer, store.buffer
    same = source.type.dtype is to.type.dtype and source.type.span == to.type.span
    places = (address(source, store.value.args, {}), address(to, store.index, {}))
    return same and linear(places[0]) == linear(places[1])


def restates(body: Block) -> bool:
    """Whether a nest packs words that lie in memory so already: it stores what it reads."""
    store = _only_store(body)
    if store is None or function_of(store.value) not in PACKS:
        return False
    parts = store.value.args
    if any(p.op != parts[0].op or not isinstance(p.op, Load) or p.op.masked for p in parts):
        return False
    terms, offset = linear(address(store.buffer, store.index, {}))
    n, source = len(parts), parts[0].op.buffer  # type: ignore[attr-defined]
    spread = {a: n * k for a, k in terms.items()}
    found = [linear(address(source, p.args, {})) for p in parts]
    return found == [(spread, n * offset + i) for i in range(n)]


# --- one of equal kernels -------------------------------------------------------------------------


def from_first(kernel: Kernel) -> tuple[Kernel, tuple[Place, ...]]:
    """The kernel with each input moved to begin at the first coordinates it reads, and these.

    load x[3, a0] -> load x[0, a0] and (3, 0): the steps of an unrolled loop, which read a row each,
    become equal.
    """
    reads: dict[Buffer, list[Node]] = {b: [] for b in kernel.inputs if b not in kernel.outputs}
    for node in nodes(kernel.body):
        if isinstance(node.op, Load) and node.op.buffer in reads:
            reads[node.op.buffer].append(node)
    first = {b: _first(b, found) for b, found in reads.items()}
    moved = {b: b for b, start in first.items() if any(start)}
    if moved:
        body = redirect(kernel.body, moved, lambda b, index: _shift(index, first[b], -1))
        kernel = replace(kernel, body=body)
    return kernel, tuple(first.get(b, (0,) * b.type.rank) for b in kernel.inputs)


def _first(buffer: Buffer, reads: list[Node]) -> Place:
    """The least constant that the reads add in each dimension; all 0 where a read is masked."""
    rank = buffer.type.rank
    if not reads or any(n.op.masked for n in reads):  # type: ignore[attr-defined]
        return (0,) * rank
    return tuple(min(_constant(n.args[d]) for n in reads) for d in range(rank))


def _constant(index: Node) -> int:
    """A lower bound of an index: its constant where it adds axes, which are >= 0; else 0."""
    terms, offset = linear(index)
    grows = all(k > 0 and isinstance(atom.op, Axis) for atom, k in terms.items())
    return max(offset, 0) if grows else 0


def _shift(index: tuple[Node, ...], start: Place, sign: int) -> tuple[Node, ...]:
    """The index + sign * start; a part that does not move stays as it is."""
    pairs = zip(index, start, strict=True)
    return tuple(from_linear(*plus(linear(i), ({}, n), sign)) if n else i for i, n in pairs)


class Unique:
    """`program` has only the first kernel of each structure; `restore` brings the others back.

    With `starts`, kernels that read different parts of their inputs alike share a structure too;
    the property `starts` has the elements at which the parts begin.
    """

    def __init__(self, program: Program, starts: bool = False) -> None:
        self.full = program
        self.places: dict[str, tuple[Place, ...]] = {}  # kernel -> where its parts begin
        moved = {k: from_first(k) if starts else (k, ()) for k in program.kernels}
        alike: dict[tuple[Any, ...], list[Kernel]] = {}
        for kernel, (part, _) in moved.items():
            alike.setdefault(structure(part), []).append(kernel)
        stands: dict[str, str] = {}
        held = {s.name: s for s in program.steps if isinstance(s, Rows)}
        steps: list[Kernel | Rows] = []
        for same in alike.values():
            places = {k.name: moved[k][1] for k in same}
            apart = len(set(places.values())) > 1
            self.places |= places if apart else {}
            stands |= dict.fromkeys(places, same[0].name)
            first = moved[same[0]][0] if apart else same[0]
            rows = held.get(first.name)
            steps.append(first if rows is None else replace(rows, kernel=first))
        # kernel -> the first kernel of its structure
        self.first = {k.name: stands[k.name] for k in program.kernels}
        self.program = replace(program, steps=tuple(steps))

    @property
    def starts(self) -> dict[str, tuple[int, ...]]:
        """For each kernel that takes parts of its inputs: the element at which each part begins."""
        layouts = {k.name: [b.type.layout for b in k.inputs] for k in self.full.kernels}
        parts = {name: zip(at, layouts[name], strict=True) for name, at in self.places.items()}
        return {name: tuple(sum(map(mul, *part)) for part in own) for name, own in parts.items()}

    def restore(self, program: Program) -> Program:
        """The full program at the level of `program`, which is `self.program` lowered."""
        made = {k.name: k for k in program.kernels}

        def again(kernel: Kernel) -> Kernel:
            own = _over_others(made[self.first[kernel.name]], kernel)
            if kernel.name not in self.places:
                return own
            flat = program.level == "kernel"
            first = [(n,) for n in self.starts[kernel.name]] if flat else self.places[kernel.name]
            return _over_whole(own, first)

        return self.full.map_kernels(program.level, again)

    def all(self, facts: Mapping[str, T]) -> dict[str, T]:
        """Facts of the first kernels, by name, as facts of every kernel."""
        return {name: facts[first] for name, first in self.first.items()}


def _over_others(found: Kernel, kernel: Kernel) -> Kernel:
    """The lowered kernel `found` of its structure, over the buffers of `kernel`."""
    pairs = zip((*found.inputs, *found.outputs), (*kernel.inputs, *kernel.outputs), strict=True)
    own = {b: replace(mine, type=b.type) for b, mine in pairs}
    return replace(substituted(found, own), name=kernel.name, origin=kernel.origin)


def _over_whole(kernel: Kernel, start: Sequence[Place]) -> Kernel:
    """The kernel over whole inputs: adds the start of each part to the indices."""
    first = {b: at for b, at in zip(kernel.inputs, start, strict=True) if any(at)}

    def change(node: Node) -> Node | None:
        at = first.get(getattr(node.op, "buffer", None))  # type: ignore[arg-type]
        if at is None:
            return None
        index, rest = node.args[: len(at)], node.args[len(at) :]
        if all(i.type.lanes == 1 for i in index):
            return make(node.op, *_shift(index, at, 1), *rest)
        return make(node.op, apply("add", index[0], constant(at[0])), *rest)  # a gather

    return replace(kernel, body=rewrite_block(kernel.body, change))
