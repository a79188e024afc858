"""own_elements: moves an intermediate to registers where each thread reads only what it wrote.

before  local s: f32[4096] in shared           after  local s: f32[32]
        s[t0 // 4 * 64 + t0 % 4 * 2 + 1] = ..         s[1] = ..
        ... load s[t0 // 4 * 64 + t0 % 4 * 2 + 8]     ... load s[2]

Each index into such a buffer is a base that depends on the thread, plus an offset that is the same
for all threads (constants and axes of unrolled loops); the offset becomes the index of a register.
Neighbouring threads may share an element: then all of them store it, not one alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

from weft.core.node import Node, make, rebuild, substitute
from weft.core.types import TensorType
from weft.kernel.spread_threads import THREAD, runs_once
from weft.scalar import nest
from weft.scalar.affine import linear
from weft.scalar.blocks import mask_of, nodes
from weft.scalar.index import simplify
from weft.scalar.intervals import bounds
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Local, Stmt, Store, walk
from weft.scalar.ops import apply, constant, function_of, value_of

MOST = 128  # elements that a thread has of a buffer
FAR = 4096  # combinations of turns of loops around an access
OF_THREADS = frozenset((THREAD,))


def own_elements(kernel: Kernel, target: object) -> Kernel:
    """Move every intermediate of which threads read only their own elements to registers."""
    parts = (*walk(kernel.body), *(n.op for n in nodes(kernel.body)))
    shared = {s.buffer for s in parts if isinstance(s, Local) and s.buffer.space == "shared"}
    others = (p for p in parts if not isinstance(p, Local | Load | Store) or getattr(p, "how", ""))
    shared -= {getattr(p, "buffer", None) for p in others}
    threads = next((s.extent for s in parts if isinstance(s, For) and s.axis is THREAD), None)
    own = _Own({b: _Part(threads or 1) for b in shared})
    own.block(kernel.body)
    own.local = {b: found for b, p in own.parts.items() if (found := p.local(b)) is not None}
    return replace(kernel, body=own.block(kernel.body)) if own.local else kernel


@dataclass(frozen=True)
class _Place:
    """The index of an access, split into the parts of threads, unrolled loops, and the rest."""

    base: frozenset[tuple[Node, int]]
    loops: tuple[tuple[For, int], ...]
    offset: int

    def turns(self) -> Iterator[tuple[int, ...]]:
        """Of the loops, all combinations."""
        return product(*(range(-(-(f.extent or 0) // f.step)) for f, _ in self.loops))

    def distance(self, turns: Sequence[int]) -> int:
        pairs = zip(self.loops, turns, strict=True)
        return self.offset + sum(k * f.step * turn for (f, k), turn in pairs)


@dataclass
class _Part:
    """The accesses of a buffer, and the register that stands for each offset."""

    threads: int
    places: dict[_Place | None, Node] = field(default_factory=dict[_Place | None, Node])
    slots: dict[int, int] = field(default_factory=dict[int, int])
    masks: set[Node] = field(default_factory=set[Node])
    same: dict[Node, Node] = field(default_factory=dict[Node, Node])  # in neighbours that share

    def local(self, buffer: Buffer) -> Buffer | None:
        """A thread's own buffer; None where others touch its elements."""
        places = [p for p in self.places if p is not None]
        bases = {p.base for p in places}
        if len(places) < len(self.places) or len(bases) != 1 or frozenset() in bases:
            return None
        found = sorted({p.distance(turns) for p in places for turns in islice(p.turns(), FAR)})
        starts = {self.start(places[0], t) for t in range(self.threads)}
        apart = len({s + d for s in starts for d in found}) == len(starts) * len(found)
        if len(found) > MOST or not apart:
            return None
        if len(starts) < self.threads:
            self.same = {term: constant(0) for term, _ in places[0].base}
        if any(m and self.differs(m) for m in map(self.for_all, self.masks)):
            return None
        self.slots = {distance: slot for slot, distance in enumerate(found)}
        for place in places:
            at = self.at(place)
            if at is None:
                return None
            self.places[place] = at
        return Buffer(buffer.name, TensorType(buffer.type.dtype, (len(found),)), "local")

    def differs(self, term: Node) -> bool:
        """Whether a term may differ between neighbours that share elements."""
        return bool(self.same) and THREAD in nest.free_variables(substitute((term,), self.same)[0])

    def for_all(self, mask: Node) -> Node | None:
        """The mask, without what leaves the first of such neighbours."""
        if function_of(mask) == "and":
            kept = [m for part in mask.args if (m := self.for_all(part)) is not None]
            return apply("and", *kept) if len(kept) == 2 else next(iter(kept), None)
        leads = function_of(mask) == "eq" and value_of(mask.args[1]) == 0
        own = leads and nest.free_variables(mask) == OF_THREADS and self.differs(mask)
        return None if own else mask

    @staticmethod
    def start(place: _Place, thread: int) -> int:
        """Where a thread's elements begin."""
        return sum(k * int(bounds(term, {THREAD: (thread, thread)})[0]) for term, k in place.base)

    def at(self, place: _Place) -> Node | None:
        """The slot of a place, as a sum over its loops; None where it is none."""
        start = self.slots[place.offset]
        one = [self.slots.get(place.offset + k * f.step, start) - start for f, k in place.loops]
        for turns in place.turns():
            slot = start + sum(n * step for n, step in zip(turns, one, strict=True))
            if self.slots.get(place.distance(turns)) != slot:
                return None
        total = constant(start)
        for (loop, _), step in zip(place.loops, one, strict=True):
            turn = apply("floordiv", loop.axis, constant(loop.step))
            total = apply("add", total, apply("multiply", turn, constant(step)))
        return simplify(total, {f.axis: (0, f.extent or 0) for f, _ in place.loops})


@dataclass
class _Own:
    """Two walks over a kernel: the first collects accesses, the second rewrites them."""

    parts: dict[Buffer, _Part]
    local: dict[Buffer, Buffer] = field(default_factory=dict[Buffer, Buffer])
    values: dict[Node, Node] = field(default_factory=dict[Node, Node])  # axes of loops run once
    unrolled: dict[Node, For] = field(default_factory=dict[Node, For])  # by axis

    def block(self, block: Block) -> Block:
        return tuple(map(self.statement, block))

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            if runs_once(stmt):
                self.values[stmt.axis] = substitute((stmt.lo,), self.values)[0]
            elif stmt.bind == "unroll" and stmt.lo is constant(0) and stmt.extent:
                self.unrolled[stmt.axis] = stmt
            stmt = replace(stmt, body=self.block(stmt.body))
        if isinstance(stmt, Local) and stmt.buffer in self.local:
            return Local(self.local[stmt.buffer])
        stmt = stmt.map_terms(lambda t: rebuild((t,), self.load)[0])
        if not isinstance(stmt, Store) or stmt.buffer not in self.parts:
            return stmt
        at = self.found(stmt.buffer, stmt.index[0], stmt.mask)
        if at is None:
            return stmt
        mask = stmt.mask and self.parts[stmt.buffer].for_all(stmt.mask)
        return replace(stmt, buffer=self.local[stmt.buffer], index=(at,), mask=mask)

    def load(self, node: Node) -> Node | None:
        if not isinstance(node.op, Load) or node.op.buffer not in self.parts:
            return None
        buffer = node.op.buffer
        mask = mask_of(node)
        at = self.found(buffer, node.args[0], mask)
        if at is None:
            return None
        mask = mask and self.parts[buffer].for_all(mask)
        rest = () if mask is None else (mask, node.args[2])
        return make(Load(self.local[buffer], bool(rest)), at, *rest)

    def found(self, buffer: Buffer, index: Node, mask: Node | None) -> Node | None:
        """The slot of an element; None on the way to find them, and where they stay shared."""
        place, part = self.place(index), self.parts[buffer]
        part.masks.update(substitute((mask,), self.values) if mask else ())
        part.places.setdefault(place, index)
        return part.places[place] if buffer in self.local else None

    def place(self, index: Node) -> _Place | None:
        terms, offset = linear(substitute((index,), self.values)[0])
        base = {(t, k) for t, k in terms.items() if nest.free_variables(t) == OF_THREADS}
        rest = [(self.unrolled.get(t), k) for t, k in terms.items() if (t, k) not in base]
        loops = tuple((f, k) for f, k in rest if f is not None and k > 0)
        return _Place(frozenset(base), loops, offset) if len(loops) == len(rest) else None
