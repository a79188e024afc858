"""The instructions of a placed block at the kernel level, by the pipe that runs them.

Counting(target, rates).block(block).fma    # 16.0 multiply-adds of whole vector registers
An instruction on half a register or less, or on a scalar, counts as `narrow` of one: see rates.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.core.node import Node, postorder
from weft.core.types import ScalarType
from weft.emit.spelling import register
from weft.emit.terms import is_dot, narrows, unnamed
from weft.kernel.ops import (
    Exchange,
    Extract,
    Pack,
    Permute,
    Shuffle,
    Splat,
    VectorLoad,
    VectorStore,
)
from weft.scalar.nest import Block, For, Let, Load, Stmt, Store, Update, is_atom
from weft.scalar.ops import CASTS, Apply, is_index
from weft.scalar.updates import combined
from weft.targets.cpu import CPU
from weft.tune.price.rates import Rates


@dataclass(frozen=True)
class Work:
    """Instructions by pipe; of a function of many steps its cost (scalar/ops.py)."""

    fma: float = 0.0
    add: float = 0.0
    step: float = 0.0
    shuffle: float = 0.0
    lane: float = 0.0
    load: float = 0.0
    store: float = 0.0

    def __add__(self, other: Work) -> Work:
        pairs = zip(self.each, other.each, strict=True)
        return Work(*(a + b for a, b in pairs))

    def over(self, count: float) -> Work:
        """Each divided by a count."""
        return Work(*(n / count for n in self.each))

    @property
    def each(self) -> tuple[float, ...]:
        return self.fma, self.add, self.step, self.shuffle, self.lane, self.load, self.store

    @property
    def total(self) -> float:
        return sum(self.each)


NONE = Work()
SCALAR = 2.0  # times as long as on lanes a function takes on one number, whose steps wait
# Times as long as from neighbouring lines a lane takes: from places that a vector of indices has;
# and where all lanes fall into one set of the first cache, since whole pages are between them.
PLACES, SAME_SET, PAGE = 2.5, 9.0, 4096
HELD = 8  # registers with what a function of many steps needs


class Counting:
    """Counts instructions for a machine with these rates."""

    def __init__(self, target: CPU, rates: Rates) -> None:
        self.target, self.rates = target, rates

    def block(self, stmts: Block) -> Work:
        """Those of the statements themselves, loops left out."""
        own = sum((self.statement(s) for s in stmts if not isinstance(s, For)), NONE)
        spilt = max(0.0, self.live(stmts) - self.target.vector_registers + HELD * (own.step > 0))
        return own + Work(load=spilt, store=spilt)

    def live(self, stmts: Block) -> float:
        """The most vector registers that hold values at once, sums that are added to included."""
        sums = dict.fromkeys(s.fold for s in stmts if isinstance(s, Update))
        total = sum(self.registers(acc.type) for fold in sums for acc in fold.accs)
        last = {term: i for i, s in enumerate(stmts) for term in used(s)}
        most = now = 0.0
        ends: dict[int, float] = {}
        for i, stmt in enumerate(stmts):
            if isinstance(stmt, Let) and stmt.term.type.lanes > 1 and stmt.term in last:
                size = self.registers(stmt.term.type)
                now += size
                ends[last[stmt.term]] = ends.get(last[stmt.term], 0.0) + size
            most = max(most, now)
            now -= ends.pop(i, 0.0)
        return total + most

    def statement(self, stmt: Stmt) -> Work:
        if isinstance(stmt, Let):
            return self.term(stmt.term)
        if isinstance(stmt, Update):
            return self.terms(self.updated(stmt))
        if isinstance(stmt, Store | VectorStore):
            return self.store(stmt)
        return NONE

    def updated(self, stmt: Update) -> list[Node]:
        """The terms that an update computes itself: those between its values and its results."""
        known = {n for v in stmt.values for n in postorder(v)}
        return [n for n in postorder(*combined(stmt)) if n not in known]

    def terms(self, found: Iterable[Node]) -> Work:
        return sum(map(self.term, found), NONE)

    def registers(self, type_: ScalarType) -> float:
        """Vector registers that a value takes; a part of one for half of a register or less."""
        return self.parts(register(type_.dtype).bytes * type_.lanes)

    def parts(self, bytes_: float) -> float:
        whole = bytes_ / self.target.vector_bytes
        return self.rates.narrow if whole <= 0.5 else float(-int(-whole // 1))

    def term(self, term: Node) -> Work:
        op, wide = term.op, self.registers(term.type)
        if is_atom(term) or is_dot(term):
            return NONE
        if isinstance(op, Load | VectorLoad):
            return self.load(term)
        if isinstance(op, Splat):
            read = isinstance(term.args[0].op, Load)  # which a load does itself
            return NONE if read or is_atom(term.args[0]) else Work(shuffle=wide)
        if isinstance(op, Shuffle | Exchange | Permute | Extract):
            return Work(shuffle=wide)
        if isinstance(op, Pack):
            return Work(shuffle=float(len(term.args)))
        return self.function(term, wide) if isinstance(op, Apply) else NONE

    def function(self, term: Node, wide: float) -> Work:
        if is_index(term) and term.type.lanes == 1:
            return NONE  # part of an address
        function = term.op.function  # type: ignore[attr-defined]
        if function is CASTS.get(term.type.dtype):
            return self.cast(term)
        if function.result == "bool" or function.name == "where":
            given = max(self.registers(a.type) for a in term.args)
            far = 2.0 if given > 1 else 1.0  # of words of 4 bytes, which have to fit the values
            return Work(add=1.5 * far * max(wide, given))  # a mask is made, or taken, as a vector
        if function.cost > 1:
            return Work(step=(SCALAR if term.type.lanes == 1 else wide) * function.cost)
        product = function.name in ("multiply", "fma") and term.type.dtype.is_float
        return Work(fma=wide) if product else Work(add=wide)

    def cast(self, term: Node) -> Work:
        """A value in another register format; of one size that is an instruction for each."""
        given = term.args[0].type
        same = register(given.dtype) is register(term.type.dtype)
        if same and not narrows(term):
            return NONE
        return Work(add=max(self.registers(given), self.registers(term.type)))

    def load(self, term: Node) -> Work:
        op = term.op
        size = op.buffer.type.dtype.bytes  # type: ignore[attr-defined]
        converts = Work(add=self.registers(term.type)) if self.converts(term.type) else NONE
        if isinstance(op, Load):
            return Work(load=self.rates.narrow) + converts
        assert isinstance(op, VectorLoad)
        wide = self.parts(size * op.lanes)
        if op.stride == 1:
            masks = Work(add=wide) if op.counted or op.masked else NONE
            return Work(load=wide * (2 if op.ahead else 1)) + masks + converts
        if op.stride in (2, -1):  # two loads, or one, and the lanes put in order
            masks = Work(add=wide) if op.counted or op.masked else NONE
            return Work(load=wide * abs(op.stride), shuffle=wide) + masks + converts
        return Work(lane=op.lanes * farther(op)) + converts

    def converts(self, type_: ScalarType) -> bool:
        """Whether memory has another format than a register."""
        return register(type_.dtype) is not type_.dtype or type_.dtype.kind == "b"

    def store(self, stmt: Store | VectorStore) -> Work:
        rounds = self.term(stmt.value) if unnamed(stmt.value) and narrows(stmt.value) else NONE
        if isinstance(stmt, Store):
            return Work(store=self.rates.narrow) + rounds
        wide = self.parts(stmt.buffer.type.dtype.bytes * stmt.lanes)
        if stmt.mask is not None:
            return Work(lane=2.0 * stmt.lanes) + rounds
        if stmt.stride != 1:
            return Work(lane=stmt.lanes * farther(stmt)) + rounds
        counted = Work(add=wide) if stmt.count is not None else NONE
        return Work(store=wide) + rounds + counted

    def chain(self, stmts: Block) -> float:
        """ns from one iteration's accumulators to the next one's: the longest chain of updates."""
        waits: dict[str, float] = {}
        for stmt in stmts:
            if isinstance(stmt, Update):
                label = stmt.fold.labels[0]
                waits[label] = waits.get(label, 0.0) + self.steps(stmt) * self.rates.latency
        return max(waits.values(), default=0.0)

    def path(self, stmts: Block) -> float:
        """ns of the longest chain of terms that wait for each other, once."""
        length: dict[Node, float] = {}
        for stmt in stmts:
            if isinstance(stmt, Let) and not is_index(stmt.term):
                before = max((length.get(a, 0.0) for a in stmt.term.args), default=0.0)
                own = self.term(stmt.term)
                length[stmt.term] = before + max(own.step, 1.0 if own.total else 0.0)
        return max(length.values(), default=0.0) * self.rates.latency

    def steps(self, stmt: Update) -> float:
        """Dependent instructions from an accumulator to its new value."""
        length: dict[Node, float] = dict.fromkeys(stmt.fold.accs, 0.0)
        for term in self.updated(stmt):
            before = [length[a] for a in term.args if a in length]
            if before:
                cost = max(1.0, self.term(term).step)
                length[term] = max(before) + (0.0 if is_dot(term) else cost)
        return max((length.get(r, 0.0) for r in combined(stmt)), default=0.0)


def used(stmt: Stmt) -> list[Node]:
    """The terms with a name that a statement reads itself."""
    if isinstance(stmt, Let):
        return list(stmt.term.args)
    return [n for t in stmt.terms() for n in (t, *t.args)]


def farther(part: VectorLoad | VectorStore) -> float:
    """How many times as long a lane takes because of where the next one is."""
    if part.stride == 0:
        return PLACES
    return SAME_SET if part.stride * part.buffer.type.dtype.bytes % PAGE == 0 else 1.0
