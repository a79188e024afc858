"""Loop nests of the loop, tile and kernel levels: ordered statements over pure scalar terms.

For(a0, 0, 16, body=(Store(out, (a0,), relu(load x[a0])),))
Each term is computed in the outermost block that binds what it depends on (placing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar
from weakref import WeakKeyDictionary

from typing_extensions import Self

from weft.core.arguments import Arguments
from weft.core.node import Node, Op, bottom_up, make, op, op_of, require
from weft.core.types import DType, ScalarType, TensorType, boolean, i64
from weft.scalar.monoid import Monoid
from weft.scalar.ops import Axis, Constant, Symbol, value_of
from weft.scalar.repeat import Repeat, Rows


@dataclass(frozen=True)
class Buffer:
    """Memory that a kernel reads or writes.

    space     global (a parameter of the kernel), local (its own) or shared (a block's own)
    swizzle   32, 64 or 128: TMA permutes the 16-byte pieces of so many bytes; 0 for no swizzle
    """

    name: str
    type: TensorType
    space: str = "global"
    swizzle: int = 0

    def __hash__(self) -> int:
        return hash((self.name, self.space))

    @property
    def bytes(self) -> int:
        """Bytes from its first element to its last, both included."""
        return self.type.span * self.type.dtype.bytes


@op("load")
class Load(Op):
    """The element of a buffer at i64 indices.

    masked  two more operands: a bool condition, and the value where it does not hold
    ahead   distance in elements to an address that the load prefetches as well; 0 for none
    """

    buffer: Buffer
    masked: bool = False
    ahead: int = 0

    def infer(self, *types: ScalarType) -> ScalarType:
        rank, name = self.buffer.type.rank, self.buffer.name
        given = len(types) - 2 * self.masked
        require(given == rank, f"load of {name} with {given} indices, not {rank}")
        indices = all(t.dtype is i64 for t in types[:rank])
        require(indices, f"load of {name}: indices must be i64")
        condition = not self.masked or types[rank].dtype is boolean
        require(condition, f"load of {name}: condition must be bool")
        return ScalarType(self.buffer.type.dtype)


@dataclass(frozen=True)
class _Carrier(Op):
    label: str
    dtype: DType
    lanes: int = 1

    def infer(self) -> ScalarType:
        return ScalarType(self.dtype, self.lanes)


@op("acc")
class Acc(_Carrier):
    """A carrier of a fold, read after the loop that declares it."""


@op("running")
class Running(_Carrier):
    """A carrier read inside its loop, after the update: the value so far (a scan)."""


@dataclass(frozen=True)
class Fold:
    """The accumulators of one reduction or scan: a monoid's carriers, by name."""

    labels: tuple[str, ...]
    monoid: Monoid
    dtypes: tuple[DType, ...]  # of the carriers
    lanes: int = 1
    finite: bool = False  # 0 * x that it adds may be taken as 0 whatever x is

    def __str__(self) -> str:
        return f"{'finite ' * self.finite}{self.monoid}"

    @property
    def accs(self) -> tuple[Node, ...]:
        return self._each(Acc)

    @property
    def running(self) -> tuple[Node, ...]:
        return self._each(Running)

    def suffixed(self, suffix: str) -> Fold:
        """The same fold into accumulators of other names."""
        return replace(self, labels=tuple(f"{label}_{suffix}" for label in self.labels))

    def _each(self, read: type[Acc | Running]) -> tuple[Node, ...]:
        named = zip(self.labels, self.dtypes, strict=True)
        return tuple(make(read(label, dtype, self.lanes)) for label, dtype in named)


COMBINING = ("atomic_add", "atomic_maximum", "atomic_minimum")  # how a store may


class Stmt:
    """A statement; `uses` names the fields that hold its terms: a node, several, or None."""

    uses: ClassVar[tuple[str, ...]] = ()

    @property
    def combines(self) -> bool:
        """Whether it is a store that combines its value with what is there, atomically."""
        return getattr(self, "how", "") in COMBINING

    def terms(self) -> tuple[Node, ...]:
        held = (getattr(self, name) for name in self.uses)
        return tuple(t for h in held if h is not None for t in (h if type(h) is tuple else (h,)))

    def map_terms(self, change: Callable[[Node], Node]) -> Self:
        changed = {n: _mapped(getattr(self, n), change) for n in self.uses}
        return replace(self, **changed) if changed else self  # type: ignore[type-var]


Held = Node | tuple[Node, ...] | None


def _mapped(held: Held, change: Callable[[Node], Node]) -> Held:
    if isinstance(held, tuple):
        return tuple(map(change, held))
    return None if held is None else change(held)


Block = tuple[Stmt, ...]

ROLES = ("free", "reduce", "scan")
# What loops in order ask of the C compiler. Each iteration of a fenced one reads memory
# anew: loads that several share would take registers from accumulators.
ASKED = ("unroll", "fenced")
ORDERED = ("", "serial", *ASKED)  # binds of iterations in order
PARALLEL = ("parallel", "grid", "thread", "lane", "warp")  # binds of concurrent iterations
# Binds of loops that copy for a pipelined loop: for its first iterations, and for later ones.
PIPELINE = ("prologue", "ahead")


@dataclass(frozen=True, eq=False)
class For(Stmt):
    """Iterate `axis` over lo, lo + step, ... < hi.

    role    free: iterations are independent; reduce: they update folds; scan: they run in order
            and read the running fold
    folds   the folds that this loop declares, which start at their identity
    bind    how iterations run, "" at the loop level: parallel (on threads), serial, register
            (unrolled), vector16 (over 16 lanes); on a GPU grid, thread, and lane or warp (among
            the threads of one outer iteration: neighbours in a warp, or several warps). tile/ops.py
            has them all.
    grain   of a parallel loop whose work sizes decide: iterations for which to wake a thread
    usual   hi - lo on average, for prices, of a loop whose ends are loaded; 0 where they say all
    """

    axis: Node
    lo: Node
    hi: Node
    body: Block
    step: int = 1
    role: str = "free"
    bind: str = ""
    folds: tuple[Fold, ...] = ()
    grain: Node | None = None
    usual: int = 0
    uses = ("lo", "hi", "grain")

    @property
    def label(self) -> str:
        return op_of(self.axis, Axis).label

    @property
    def lanes(self) -> int:
        """Lanes of a vector loop, 0 for any other."""
        return int(self.bind.removeprefix("vector")) if self.bind.startswith("vector") else 0

    @property
    def extent(self) -> int | None:
        """hi - lo where both are literals, else None."""
        lo, hi = value_of(self.lo), value_of(self.hi)
        return None if lo is None or hi is None else int(hi) - int(lo)

    def map_terms(self, change: Callable[[Node], Node]) -> For:
        inside = tuple(s.map_terms(change) for s in self.body)
        return replace(super().map_terms(change), body=inside)


@dataclass(frozen=True, eq=False)
class Update(Stmt):
    """fold <- combine(fold, lift(values)); updates.py has the terms.

    With `partial`, the values are carriers already, of another part of the reduction. At the kernel
    level a sum may take two values, the factors of a product: fold <- fma(x, y, fold).
    """

    fold: Fold
    values: tuple[Node, ...]
    partial: bool = False
    uses = ("values",)


@dataclass(frozen=True, eq=False)
class Store(Stmt):
    """buffer[index] = value, where `mask` holds if there is one.

    how     "stream" bypasses the caches; "async" does not wait: its data is there after a barrier;
            one of COMBINING is atomic: it adds the value to what is there, and the like, in any
            order with others; "" is an ordinary store
    when    it is an ordinary store where this does not hold
    """

    buffer: Buffer
    index: tuple[Node, ...]
    value: Node
    mask: Node | None = None
    how: str = ""
    when: Node | None = None
    uses = ("index", "value", "mask", "when")


@dataclass(frozen=True, eq=False)
class Local(Stmt):
    """Declare a local buffer for the rest of the block."""

    buffer: Buffer


@dataclass(frozen=True, eq=False)
class Let(Stmt):
    """Compute `term` here and name it; only in the placed form (placing.py)."""

    term: Node
    uses = ("term",)


@dataclass(frozen=True, eq=False)
class Kernel:
    """One launch: reads `inputs`, writes `outputs`. `origin` names the torch lines it came from."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: Block
    origin: tuple[str, ...] = ()

    @property
    def where(self) -> str | None:
        """The torch lines as an error names them, None without any."""
        return "; ".join(self.origin) or None


@dataclass(frozen=True, eq=False)
class Call:
    """A library call between kernels: target and arguments as in the tensor level's Extern."""

    target: str
    arguments: Arguments
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    reason: str = ""
    origin: str = ""  # its torch line


Step = Kernel | Rows | Call | Repeat


@dataclass(frozen=True, eq=False)
class Program:
    """Kernels and library calls in order over named buffers, at the loop, tile or kernel level.

    Every buffer that is neither an input nor an output is temporary.
    """

    level: str
    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    steps: tuple[Step, ...]

    @property
    def each(self) -> tuple[Kernel | Rows | Call, ...]:
        """The kernels and calls, those that are repeated once."""
        inside = (s.steps if isinstance(s, Repeat) else (s,) for s in self.steps)
        return tuple(s for steps in inside for s in steps)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Those that are steps, those of rows, and those that are repeated."""
        held = (s.kernel if isinstance(s, Rows) else s for s in self.each)
        return tuple(s for s in held if isinstance(s, Kernel))

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        return tuple(s for s in self.steps if isinstance(s, Repeat))

    def unrolled(self) -> Iterator[tuple[Kernel | Rows | Call, dict[str, tuple[Buffer, int]]]]:
        """Steps as they run; of its buffers that are slices, which buffer and element they are."""
        for step in self.steps:
            if isinstance(step, Repeat):
                for t in range(step.count):
                    places = step.places(t)
                    yield from ((kernel, places) for kernel in step.steps)
            else:
                yield step, {}

    def buffers(self) -> Iterator[Buffer]:
        """Every buffer as each step has it, slices and what they are slices of too."""
        yield from (*self.inputs, *self.outputs)
        for step in self.each:
            yield from (*step.inputs, *step.outputs)
        for repeat in self.repeats:
            yield from repeat.buffers()

    def expand_kernels(self, change: Callable[[Kernel], Iterable[Kernel]]) -> Program:
        """Replace each kernel by kernels that run one after the other; one with rows by one.

        None that is repeated.
        """

        def parts(step: Step) -> Iterable[Step]:
            if isinstance(step, Rows):
                (kernel,) = change(step.kernel)
                return (replace(step, kernel=kernel),)
            return change(step) if isinstance(step, Kernel) else (step,)

        return replace(self, steps=tuple(s for step in self.steps for s in parts(step)))

    def map_kernels(self, level: str, change: Callable[[Kernel], Kernel]) -> Program:
        """Replace each kernel, repeated ones as well."""

        def one(step: Step) -> Step:
            if isinstance(step, Repeat):
                return replace(step, steps=tuple(map(change, step.steps)))
            if isinstance(step, Rows):
                return replace(step, kernel=change(step.kernel))
            return change(step) if isinstance(step, Kernel) else step

        return replace(self, level=level, steps=tuple(map(one, self.steps)))


def walk(block: Block) -> Iterator[Stmt]:
    """Every statement, outer before inner."""
    for stmt in block:
        yield stmt
        if isinstance(stmt, For):
            yield from walk(stmt.body)


_free: WeakKeyDictionary[Node, frozenset[Node]] = WeakKeyDictionary()


def free_variables(*terms: Node) -> frozenset[Node]:
    """Axes and accumulators that terms depend on."""

    def compute(node: Node) -> frozenset[Node]:
        own = frozenset((node,)) if is_variable(node) else frozenset[Node]()
        return own.union(*(_free[a] for a in node.args))

    found = [bottom_up(term, _free, compute) for term in terms]  # type: ignore[arg-type]
    return found[0] if len(found) == 1 else frozenset[Node]().union(*found)


def is_variable(term: Node) -> bool:
    return isinstance(term.op, Axis | Acc | Running)


def is_atom(term: Node) -> bool:
    """Terms that need no Let: variables, literals and sizes."""
    return isinstance(term.op, Constant | Symbol) or is_variable(term)
