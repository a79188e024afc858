"""join_launches: joins kernels that do the same to other buffers into one, over rows of operands.

before  kernel add(x: f32[64], y: f32[64]) -> z: f32[64]        after  size n0: 64..96 near 96
        for a0 in 0..64:  # free                                       kernel add(x: f32[n0], ...
            z[a0] = add(x[a0], y[a0])                                  row(x, y) -> z where n0 = 64
        kernel add_1(u: f32[8,12], v: f32[8,12]) -> w: f32[8,12]       row(u, v) -> w where n0 = 96
        for a0 in 0..8:  # free                                        for a0 in 0..n0:  # free
            for a1 in 0..12:  # free                                       z[a0] = add(x[a0], y[a0])
                w[a0, a1] = add(u[a0, a1], v[a0, a1])

Horizontal fusion: an optimiser's step is one launch and one C function for all tensors. Maps over
all of dense memory may differ in shape: they are one loop over their flat spaces, as long as each
row says. Other kernels are equal but for the names of buffers. On a GPU a launch takes some hundred
operands, and products stay apart.
"""

import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, groupby
from math import gcd
from operator import itemgetter

from weft.core.node import Node, make
from weft.core.types import TensorType
from weft.scalar.blocks import access, address, combining, loops_in, nodes, redirect
from weft.scalar.choices import Choices
from weft.scalar.nest import (
    Block,
    Buffer,
    For,
    Kernel,
    Program,
    Rows,
    Step,
    Stmt,
    Store,
    free_variables,
    walk,
)
from weft.scalar.ops import Symbol, constant
from weft.scalar.order import Order
from weft.scalar.repeat import Row
from weft.scalar.resize import sizes_of, with_sizes
from weft.scalar.sizes import size
from weft.scalar.structure import copies, renumber, restates, structure
from weft.targets.gpu import GPU
from weft.targets.machine import Machine
from weft.tile.analysis.access import contraction, ranges_in
from weft.tile.moves.join import collapse
from weft.tile.price.cost import block_time_us

ANY = make(Symbol("n", 1, 1 << 40, 1))  # the length of a map, while maps are compared
LONG = 4.0  # as many times what threads take to wake: threads share such a kernel, or else rows


@dataclass(frozen=True, eq=False)
class _Member:
    """A kernel, and how many elements it maps over flat memory; 0 if it is no map."""

    kernel: Kernel
    length: int


def join_launches(
    program: Program, target: Machine, constants: Iterable[int], choices: Choices
) -> Program:
    """Join kernels that are alike, as many as do not depend on each other.

    What has been computed waits for the last of them, and what reads them as well: a cache has to
    hold it, or memory would be taken for longer, and read again. Those that stand one right after
    the other have nothing wait.
    """
    if sizes_of(program):
        return program  # their kernels may read sizes of the program, which rows do not have
    order, numbers = _Order(program.steps), count()
    held, asked = (target.l3 if isinstance(target, GPU) else target.l2) // 2, set[str]()
    found = _alike(program, {program.inputs[i].name for i in constants})
    found = [alike for alike in found if most_rows(alike[0].kernel, target) > 1]

    def join(members: Sequence[_Member], us: float, most: float) -> None:
        nonlocal order
        members = order.independent(members)[0]  # what was joined since may be in between
        name = f"rows.{members[0].kernel.name}"
        if len(members) > 1 and order.waiting(members) <= most and name not in asked:
            asked.add(name)
            if choices.decide(name, True):
                rows = _rows(members, us, target, numbers)
                order = _Order(order.joined(order.places(members), rows))

    for alike in found:
        small = [m for m in alike if order.passed(m.kernel) <= held // len(alike)]
        for same, us in _classes(small, target):
            for apart in (some for free in order.independent(same) for some in _few(free, target)):
                join(apart, us, held)
    for alike in found:  # those that are left, where nothing waits for longer
        for near in order.runs(alike):
            for same, us in _classes(near, target):
                for some in _few(same, target):
                    join(some, us, 0)
    return replace(program, steps=tuple(order.steps))


# --- kernels that are alike -----------------------------------------------------------------------


def _alike(program: Program, constants: set[str]) -> list[list[_Member]]:
    """Kernels of one structure, several of each, in order of the first."""
    written = Counter(b.name for s in program.steps for b in s.outputs)
    found: dict[Hashable, list[_Member]] = {}
    known: dict[Hashable, tuple[Hashable, int]] = {}  # by structure: that of the flat one, length
    for step in program.steps:
        if not isinstance(step, Kernel):
            continue
        if all(b.name in constants for b in step.inputs):  # it runs once, or seldom
            constants |= {b.name for b in step.outputs}
            continue
        passed = any(b.name in written for b in step.inputs)
        if restates(step.body) or (passed and copies(step.body)):
            continue  # it is left out, or stored where its input is made
        if any(combining(step.body)) or any(written[b.name] > 1 for b in step.outputs):
            continue
        own = structure(step)
        if own not in known:
            flat, length = _flat(step)
            known[own] = structure(flat), length
        found.setdefault(known[own][0], []).append(_Member(step, known[own][1]))
    return [members for members in found.values() if len(members) > 1]


def _flat(kernel: Kernel) -> tuple[Kernel, int]:
    """The kernel as maps of `ANY` elements of flat memory, and how many it has; itself, and 0."""
    body = renumber(collapse(kernel.body))
    loops = [s for s in body if isinstance(s, For)]
    lengths = {loop.extent for loop in loops if loop.lo is constant(0) and loop.step == 1}
    maps = all(loop.role == "free" and _stores_alone(loop.body) for loop in loops)
    length = lengths.pop() if len(lengths) == 1 else None
    if not length or not maps or not all(isinstance(s, For | Store) for s in body):
        return kernel, 0
    whole: set[Buffer] = set()
    for stmt in body:
        for buffer, at in _places(stmt):
            along = isinstance(stmt, For) and at is stmt.axis and buffer.type.span == length
            if not along and free_variables(at):
                return kernel, 0
            if along:
                whole.add(buffer)
    fixed = (b for s in body for b, at in _places(s) if not free_variables(at))
    if not whole.isdisjoint(fixed):
        return kernel, 0
    flat = {b: replace(b, type=TensorType(b.type.dtype, (size(ANY),))) for b in whole}
    made = tuple(_over_flat(s, flat) for s in body)
    sides = (tuple(flat.get(b, b) for b in side) for side in (kernel.inputs, kernel.outputs))
    inputs, outputs = sides
    return replace(kernel, inputs=inputs, outputs=outputs, body=made), length


def _stores_alone(body: Block) -> bool:
    return all(isinstance(s, Store) and s.mask is None for s in body)


def _places(stmt: Stmt) -> Iterator[tuple[Buffer, Node]]:
    """The buffers that a statement accesses, and where in their memory."""
    block = (stmt,)
    ranges = ranges_in(block)
    for part in (*walk(block), *nodes(block)):
        if (found := access(part)) is not None:
            yield found[0], address(*found, ranges)


def _over_flat(stmt: Stmt, flat: dict[Buffer, Buffer]) -> Stmt:
    if not isinstance(stmt, For):
        return stmt
    (loop,) = redirect((stmt,), flat, lambda b, index: (stmt.axis,))
    assert isinstance(loop, For)
    return replace(loop, hi=ANY)


def _classes(
    members: Sequence[_Member], target: Machine
) -> Iterator[tuple[Sequence[_Member], float]]:
    """The members that one kernel serves well, and us that one takes on average, 0 where threads
    share each: apart from those that are worth it are the shorter ones.
    """

    @cache
    def us(length: int) -> float:
        first = next(m for m in members if m.length == length)
        return block_time_us(first.kernel.body, target)

    def is_long(m: _Member) -> bool:
        return us(m.length) > LONG * target.fork_us

    for long, same in groupby(sorted(members, key=is_long), is_long):
        held = [*same]
        yield held, 0.0 if long else sum(us(m.length) for m in held) / len(held)


def most_rows(kernel: Kernel, target: Machine) -> int:
    """How many rows one launch takes the operands of.

    On a GPU one of a product: a copy engine fills its tiles by what the launch says of an operand.
    """
    if target.operands is None:
        return sys.maxsize
    if any(map(contraction, loops_in(kernel.body))):
        return 1
    return target.operands // (len(kernel.inputs) + len(kernel.outputs))


def _few(members: Sequence[_Member], target: Machine) -> Iterator[Sequence[_Member]]:
    """As many members at a time as one launch takes the operands of."""
    most = min(len(members), most_rows(members[0].kernel, target))
    return (members[i : i + most] for i in range(0, len(members), most))


def _rows(members: Sequence[_Member], us: float, target: Machine, numbers: Iterator[int]) -> Rows:
    """The members as one kernel: as the first is, where all are as long, or of any length.

    Threads share rows that take `us` each, as loops whose work sizes decide.
    """
    lengths, sizes = [m.length for m in members], tuple[Node, ...]()
    most, first = max(lengths), members[0].kernel
    if min(lengths) < most:
        sizes = (make(Symbol(f"n{next(numbers)}", min(lengths), most, most, gcd(*lengths))),)
        first = with_sizes(_flat(first)[0], {ANY: sizes[0]})
    elif len({structure(m.kernel) for m in members}) > 1:
        first = with_sizes(_flat(first)[0], {ANY: constant(most)})
    rows = (Row(m.kernel.inputs, m.kernel.outputs, (m.length,) * len(sizes)) for m in members)
    origin = dict.fromkeys(line for m in members for line in m.kernel.origin)
    grain = int(2 * target.fork_us / max(us, 1e-3)) + 1 if us else 0
    return Rows(replace(first, origin=tuple(origin)), tuple(rows), sizes, grain)


# --- their order ----------------------------------------------------------------------------------


class _Order(Order):
    """The order of steps, of which kernels are joined that are alike."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__(steps)
        self.made = {b.name for step in steps for b in step.outputs}

    def independent(self, members: Sequence[_Member]) -> list[list[_Member]]:
        """The members in groups, as early as possible, of which none depends on another."""
        groups: list[list[_Member]] = []
        sets: list[int] = []
        for i, m in sorted(((self.at[m.kernel], m) for m in members), key=itemgetter(0)):
            free = next((n for n, found in enumerate(sets) if not self.before[i] & found), None)
            if free is None:
                free = len(sets)
                groups.append([])
                sets.append(0)
            groups[free].append(m)
            sets[free] |= 1 << i
        return groups

    def runs(self, members: Sequence[_Member]) -> list[list[_Member]]:
        """The members that are steps still, in groups of which each stands right after another."""
        at = sorted((self.at[m.kernel], m) for m in members if m.kernel in self.at)
        groups = groupby(enumerate(at), lambda pair: pair[1][0] - pair[0])
        return [[m for _, (_, m) in group] for _, group in groups]

    def passed(self, step: Step) -> int:
        """Bytes that the step reads of what steps of the program make."""
        return sum(b.type.bytes for b in step.inputs if b.name in self.made)

    def waiting(self, members: Sequence[_Member]) -> int:
        """Bytes that wait where the members are joined: what has to run after the last of them."""
        return sum(map(self.passed, self.around(self.places(members))[1]))

    def places(self, members: Sequence[_Member]) -> set[int]:
        return {self.at[m.kernel] for m in members}
