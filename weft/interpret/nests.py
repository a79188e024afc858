"""The reference interpreter of loop, tile and kernel programs, on NumPy.

run(program, [x, w])                 # outputs, in the order of program.outputs
run(program, [x, w], widen=True)     # every float computed in float64
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.core.errors import VerifyError
from weft.core.node import Node, postorder
from weft.interpret import memory as memories
from weft.interpret.memory import Memory, both, element, logical, poison, repeats
from weft.scalar import nest
from weft.scalar.nest import Fold
from weft.scalar.ops import ROUNDINGS, SAFE, Apply, Constant, bits, evaluate_term
from weft.scalar.placing import place
from weft.scalar.resize import at_shapes
from weft.scalar.rows import parts
from weft.scalar.updates import lifted

LIMIT = 1 << 18  # most elements of an array over the open loops: loops run in chunks of that size


@dataclass(frozen=True)
class Access:
    """One load or store, over arrays with a dimension for each open loop.

    index       an array of indices for each axis of the buffer
    condition   where the access happens, None for everywhere
    other       the value of a load where the condition does not hold
    value       the value that a store writes
    combine     the NumPy function by which it combines with what is there
    """

    buffer: nest.Buffer
    index: tuple[Any, ...]
    condition: Any = None
    other: Any = 0
    value: Any = None
    combine: str = ""


# The Access of a memory op, from its operands' values, or of a statement, from a function that
# evaluates its terms.
Accesses = Mapping[type, Callable[..., Access]]


def _load(op: nest.Load, *args: Any) -> Access:
    rank = op.buffer.type.rank
    return Access(op.buffer, args[:rank], *args[rank:])


def _store(stmt: nest.Store, value: Callable[[Node], Any]) -> Access:
    mask = None if stmt.mask is None else value(stmt.mask)
    index = tuple(value(i) for i in stmt.index)
    combine = stmt.how.partition("atomic_")[2]
    return Access(stmt.buffer, index, mask, value=value(stmt.value), combine=combine)


SCALAR: Accesses = {nest.Load: _load, nest.Store: _store}


def run(
    program: nest.Program,
    inputs: Sequence[np.ndarray],
    *,
    accesses: Accesses = SCALAR,
    widen: bool = False,
) -> list[np.ndarray]:
    """Execute a program; inputs and outputs are arrays of their buffers' shapes.

    VerifyError where an access is out of bounds, or two iterations store to one element what is
    not equal. A program for any size runs at the sizes of its inputs.
    """
    program = at_shapes(program, map(np.shape, inputs))
    memory = memories.allocate(program, inputs, widen)
    with np.errstate(all="ignore"):
        for step, places in program.unrolled():
            if isinstance(step, nest.Call):
                memories.run_call(step, memory)
                continue
            here = {name: Memory(memory[b.name].data[at:]) for name, (b, at) in places.items()}
            for kernel in parts(step) if isinstance(step, nest.Rows) else (step,):
                _Machine(kernel, memory | here, accesses, widen).block(place(kernel.body))
    return [np.array(logical(memory[b.name], b.type)) for b in program.outputs]


class _Machine:
    """One kernel's execution: the open loops, the values of terms, and memory.

    Each loop is one dimension of every array, and a vector's lanes are the last. A term is computed
    where `place` puts it, for all iterations of the loops around it at once. A reduction folds its
    dimension by the monoid's combine. A loop runs in chunks that keep arrays small; a chunk is one
    iteration where iterations depend on each other.
    """

    def __init__(
        self, kernel: nest.Kernel, memory: dict[str, Memory], accesses: Accesses, widen: bool
    ) -> None:
        self.kernel, self.memory, self.accesses, self.widen = kernel, memory, accesses, widen
        self.locals: dict[str, Memory] = {}
        self.loops: list[nest.For] = []
        self.sizes: list[int] = []  # iterations of each open loop that this chunk does
        self.active: list[Any] = [None]  # by depth: which of them run; None: all
        self.folds: dict[nest.Fold, Carriers] = {}
        self.known: dict[Node, Any] = {}
        self.parallel: dict[nest.For, bool] = {}
        self.rank = 1 + _depth(kernel.body)  # a dimension for each level of loops, and the lanes

    # Terms

    def value(self, term: Node) -> Any:
        """The term's value over the open loops, computed unless it is known."""
        return self.known[term] if term in self.known else self._compute(term)

    def _compute(self, node: Node) -> Any:
        op, dtype = node.op, element(node.type.dtype, self.widen)
        if isinstance(op, Constant):
            return dtype.type(op.value)
        args = [self.value(a) for a in node.args]
        if type(op) in self.accesses:
            return self._read(self.accesses[type(op)](op, *args))
        if isinstance(op, Apply):
            if self.widen and op.function in ROUNDINGS:
                return np.asarray(args[0]).astype(dtype)
            if op.function is bits:
                args[0] = np.asarray(args[0], node.args[0].type.dtype.numpy)
            if op.function in SAFE and self.active[-1] is not None:
                args[0] = np.where(self.active[-1], args[0], SAFE[op.function])
        else:
            args = [self._spread(v, a.type.lanes) for v, a in zip(args, node.args, strict=True)]
        value = op.evaluate(*args)
        return value if value.dtype == dtype else value.astype(dtype)

    def _spread(self, value: Any, lanes: int) -> Any:
        """Broadcast a value to its number of lanes."""
        return np.broadcast_to(value, np.broadcast_shapes(np.shape(value), (lanes,)))

    # Memory

    def _memory(self, buffer: nest.Buffer) -> Memory:
        found = (self.memory if buffer.space == "global" else self.locals).get(buffer.name)
        if found is None:
            raise self.error(f"buffer {buffer.name} is used before it is declared")
        if buffer.type.span > found.data.size:
            raise self.error(f"{buffer.name} has {found.data.size} elements, used as {buffer.type}")
        return found

    def _address(self, kind: str, access: Access, runs: Any) -> Any:
        """Offsets in the buffer's memory; an error where an active iteration is out of bounds."""
        memory, shape = self._memory(access.buffer), access.buffer.type.shape
        address = memory.base
        for k, (i, extent) in enumerate(zip(access.index, shape, strict=True)):
            if np.min(i) < 0 or np.max(i) >= extent:
                outside = both((i < 0) | (i >= extent), runs)
                if np.any(outside):
                    raise self._out_of_bounds(kind, access, k, outside)
                i = np.clip(i, 0, max(extent - 1, 0))
            address = address + i * access.buffer.type.layout[k]
        return address if access.buffer.type.size else address * 0

    def _read(self, access: Access) -> Any:
        runs = both(self.active[-1], access.condition)
        value = self._memory(access.buffer).data[self._address("load of", access, runs)]
        if access.condition is None:
            return value
        return np.where(access.condition, value, np.asarray(access.other, value.dtype))

    def _write(self, access: Access) -> None:
        data = self._memory(access.buffer).data
        runs = both(self.active[-1], access.condition)
        address = self._address("store to", access, runs)
        free = [n if f.role == "free" else 1 for n, f in zip(self.sizes, self.loops, strict=True)]
        shapes = [np.shape(a) for a in (address, access.value, runs) if a is not None]
        shape = np.broadcast_shapes((*free, *(1,) * (self.rank - len(free))), *shapes)
        address, value = np.broadcast_to(address, shape), np.broadcast_to(access.value, shape)
        if runs is not None:
            runs = np.broadcast_to(runs, shape)
            address, value = address[runs], value[runs]
        if access.combine:
            getattr(np, access.combine).at(data, address, value)
            return
        data[address] = value
        if all(n == m for n, m in zip(self.sizes, free, strict=True)) and repeats(address):
            stored = np.ascontiguousarray(value, data.dtype)
            if data[address].tobytes() != stored.tobytes():
                raise self.error(f"two iterations store to one element of {access.buffer.name}")

    # Statements

    def block(self, body: nest.Block) -> None:
        for stmt in body:
            if isinstance(stmt, nest.For):
                self._loop(stmt)
            elif isinstance(stmt, nest.Update):
                self._update(stmt)
            elif isinstance(stmt, nest.Local):
                self._declare(stmt.buffer)
            elif isinstance(stmt, nest.Let):
                self.known[stmt.term] = self._compute(stmt.term)
            elif type(stmt) in self.accesses:
                self._write(self.accesses[type(stmt)](stmt, self.value))
            else:
                raise self.error(f"{type(stmt).__name__} is no statement of this level")

    def _declare(self, buffer: nest.Buffer) -> None:
        """Allocate a copy of a local buffer for each iteration of the open loops."""
        copies = math.prod(self.sizes)
        base = np.arange(copies).reshape(*self.sizes, *(1,) * (self.rank - len(self.sizes)))
        data = poison(copies * max(buffer.type.span, 1), element(buffer.type.dtype, self.widen))
        self.locals[buffer.name] = Memory(data, base * buffer.type.span)

    def _loop(self, loop: nest.For) -> None:
        depth = len(self.loops)
        lo, hi = self.value(loop.lo), self.value(loop.hi)
        count = np.maximum(-((lo - hi) // loop.step), 0)
        if self.active[depth] is not None:
            count = np.where(self.active[depth], count, 0)
        total = int(np.max(count))
        even = int(np.min(count)) == total
        for fold in loop.folds:
            identity = [self.value(t) for t in fold.monoid.identity(fold.dtypes)]
            self.folds[fold] = Carriers(fold, depth, identity, self.widen)
        width, locals_ = self._width(loop), dict(self.locals)
        self.loops.append(loop)
        for first in range(0, total, width):
            here = np.arange(first, min(first + width, total))
            here = here.reshape(*(1,) * depth, -1, *(1,) * (self.rank - depth - 1))
            runs = None if even or (below := here < count).all() else below
            self.sizes.append(here.size)
            self.active.append(runs)
            self.known[loop.axis] = lo + here * loop.step
            self.block(loop.body)
            for stmt in loop.body:  # another loop over the same axis has values of its own
                if isinstance(stmt, nest.Let):
                    self.known.pop(stmt.term, None)
            self.sizes.pop()
            self.active.pop()
        self.loops.pop()
        self.locals = locals_
        for fold in loop.folds:
            self.known.update(zip(fold.accs, self.folds.pop(fold).values, strict=True))

    def _width(self, loop: nest.For) -> int:
        """The number of iterations in a chunk."""
        if loop not in self.parallel:
            apart = loop.role == "reduce" and _separable(loop, self.accesses)
            self.parallel[loop] = loop.role == "free" or apart
        if not self.parallel[loop]:
            return 1
        spans = [s.buffer.type.span for s in nest.walk(loop.body) if isinstance(s, nest.Local)]
        lanes = [t.type.lanes for s in loop.body for t in s.terms()]
        each = math.prod(self.sizes) * max((1, *spans, *lanes))
        return max(1, LIMIT // each)

    # Folds

    def _update(self, stmt: nest.Update) -> None:
        fold = self.folds.get(stmt.fold)
        if fold is None:
            raise self.error(f"{stmt.fold.labels[0]} is updated outside the loop that declares it")
        for loop in self.loops[fold.depth :]:
            if loop.role == "free":
                raise self.error(f"free loop {loop.label} updates {stmt.fold.labels[0]}")
        parts = [self._over_loops(self.value(t), fold.depth) for t in lifted(stmt)]
        parts = list(np.broadcast_arrays(*parts))
        if self.active[-1] is not None:
            runs = self.active[-1]
            parts = [np.where(runs, p, i) for p, i in zip(parts, fold.identity, strict=True)]
        values = fold.add(parts, len(self.loops))
        self.known.update(zip(stmt.fold.running, values, strict=True))

    def _over_loops(self, value: Any, depth: int) -> Any:
        """Broadcast the value over the loops from `depth` inwards."""
        loops = (1,) * depth + tuple(self.sizes[depth:])
        full = loops + (1,) * (self.rank - len(loops))
        return np.broadcast_to(value, np.broadcast_shapes(np.shape(value), full))

    # Errors

    def error(self, message: str) -> VerifyError:
        return VerifyError(f"kernel {self.kernel.name}: {message}", self.kernel.where)

    def _out_of_bounds(self, kind: str, access: Access, k: int, outside: Any) -> VerifyError:
        varies = [np.shape(i) for i in access.index]
        loops = [
            loop
            for d, loop in enumerate(self.loops)
            if self.sizes[d] == 1 or any(len(v) == self.rank and v[d] > 1 for v in varies)
        ]
        axes = [self.known[loop.axis] for loop in loops]
        shape = np.broadcast_shapes(np.shape(outside), *varies, *map(np.shape, axes))
        spot = tuple(np.argwhere(np.broadcast_to(outside, shape))[0])

        def at(value: Any) -> str:
            return str(np.broadcast_to(value, shape)[spot])

        index = ", ".join(map(at, access.index))
        run = ", ".join(f"{f.label}={at(a)}" for f, a in zip(loops, axes, strict=True))
        where = f" where {run}" if run else ""
        buffer = access.buffer
        return self.error(
            f"{kind} {buffer.name}[{index}] is out of bounds: axis {k} of {buffer.type} "
            f"has {buffer.type.shape[k]} elements{where}"
        )


def _depth(body: nest.Block) -> int:
    return max((1 + _depth(s.body) for s in body if isinstance(s, nest.For)), default=0)


def _separable(loop: nest.For, accesses: Accesses) -> bool:
    """Whether a reduce loop's iterations can run at once: none reads what another computed."""
    inside = list(nest.walk(loop.body))
    nodes = set(postorder(*(t for s in inside for t in s.terms())))
    read = {n.op.buffer.name for n in nodes if type(n.op) in accesses}  # type: ignore[attr-defined]
    own = {s.buffer.name for s in inside if isinstance(s, nest.Local)}
    written = {s.buffer.name for s in inside if type(s) in accesses}  # type: ignore[attr-defined]
    return not (read & written - own or any(isinstance(n.op, nest.Running) for n in nodes))


Arrays = list[Any]  # one per carrier


# --- folds ----------------------------------------------------------------------------------------


class Carriers:
    """The values of a fold's carriers, each over the `depth` loops around the declaring loop."""

    def __init__(self, fold: Fold, depth: int, identity: Arrays, widen: bool) -> None:
        self.depth, self.identity, self.values = depth, identity, identity
        left, right = (
            replace(fold, labels=tuple(side + n for n in fold.labels)).accs
            for side in ("left ", "right ")
        )
        self.sides = (*left, *right)
        self.results = fold.monoid.combine(left, right)
        self.literals = {
            n: element(n.op.dtype, widen).type(n.op.value)
            for n in postorder(*self.results)
            if isinstance(n.op, Constant)
        }

    def combine(self, left: Arrays, right: Arrays) -> Arrays:
        """Apply the monoid's combine to arrays."""
        known = self.literals | dict(zip(self.sides, (*left, *right), strict=True))
        return [evaluate_term(r, known) for r in self.results]

    def add(self, parts: Arrays, loops: int) -> Arrays:
        """Fold the parts over the loops from `depth` on, innermost first, into the values."""
        for axis in reversed(range(self.depth, loops)):
            parts = self._fold(parts, axis)
        self.values = self.combine(self.values, parts)
        return self.values

    def _fold(self, values: Arrays, axis: int) -> Arrays:
        """Fold a dimension to length 1: combine its halves, again and again."""
        while (n := values[0].shape[axis]) > 1:
            half = (n + 1) // 2
            early = _part(values, axis, slice(0, n - half))
            both = self.combine(early, _part(values, axis, slice(half, n)))
            if n % 2:
                middle = _part(values, axis, slice(half - 1, half))
                both = [np.concatenate(p, axis) for p in zip(both, middle, strict=True)]
            values = both
        return values


def _part(values: Arrays, axis: int, which: slice) -> Arrays:
    return [v[(slice(None),) * axis + (which,)] for v in values]
