"""One function of MLIR over buffers: the nest of a kernel.

Nest(kernel, "k_relu", moving={}, called={}).whole()     # func.func @k_relu(%x: memref<8xf32>, ...
A free loop is scf.parallel, any other scf.for, whose iter_args are the carriers of its folds.
"""

import re
from collections.abc import Sequence

from weft.core.errors import UnsupportedOpError
from weft.core.node import Node, bottom_up, op_of
from weft.core.types import TensorType, boolean, i64, row_major
from weft.export.mlir_terms import apply
from weft.export.mlir_text import INDEX, Function, spelled
from weft.scalar import nest
from weft.scalar.nest import Buffer, Fold, For, Kernel
from weft.scalar.ops import CASTS, Apply, Axis, Constant, Symbol, where
from weft.scalar.placing import place
from weft.scalar.resize import sizes_of
from weft.scalar.sizes import Extent, Size
from weft.scalar.updates import combined

# Functions of i64 that are an `index` where all of their arguments are.
OF_INDEX = {*"add subtract multiply floordiv floormod truncdiv minimum maximum where".split()}
COMBINING = {  # how a store combines, by the kind of the dtype
    "atomic_add": {"float": "addf", "int": "addi", "uint": "addi"},
    "atomic_maximum": {"float": "maximumf", "int": "maxs", "uint": "maxu"},
    "atomic_minimum": {"float": "minimumf", "int": "mins", "uint": "minu"},
}
PLAIN_NAME = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)


def symbol(name: str) -> str:
    """A function's name, in quotes where it needs them."""
    return f"@{name}" if PLAIN_NAME.fullmatch(name) else f'@"{name}"'


def memref(type_: TensorType, moves: bool = False) -> str:
    """The type of a buffer; one that `moves` begins at any element of its memory."""
    shape = "".join(f"{_number(n)}x" for n in type_.shape)
    if not moves and type_.layout == row_major(type_.shape):
        return f"memref<{shape}{spelled(type_.dtype)}>"
    layout = f"strided<[{_list(type_.layout)}]{', offset: ?' if moves else ''}>"
    return f"memref<{shape}{spelled(type_.dtype)}, {layout}>"


def _number(extent: Extent) -> str:
    return "?" if isinstance(extent, Size) else str(extent)


def _list(extents: Sequence[Extent]) -> str:
    return ", ".join(map(_number, extents))


class Terms(Function):
    """A function that has names for scalar terms and for buffers."""

    def __init__(self, called: dict[str, str]) -> None:
        super().__init__(called=called)
        self.names: dict[Node, str] = {}
        self.indices: dict[Node, bool] = {}
        self.memory: dict[str, tuple[str, str]] = {}  # buffer -> its name and its type

    def head(self, name: str, buffers: dict[str, tuple[Buffer, str]], sizes: list[Node]) -> str:
        """The first line of a function over buffers, which have types, and sizes."""
        given: list[str] = []
        for label, (_, type_) in buffers.items():
            self.memory[label] = self.fresh(label), type_
            given.append(f"{self.memory[label][0]}: {type_}")
        for node in sizes:
            self.names[node] = self.fresh(op_of(node, Symbol).label)
            given.append(f"{self.names[node]}: {INDEX}")
        return f"func.func {symbol(name)}({', '.join(given)}) {{"

    def is_index(self, term: Node) -> bool:
        """Whether an i64 is arithmetic of axes, sizes and literals alone: an `index` in MLIR."""

        def compute(node: Node) -> bool:
            if node.type.dtype is not i64:
                return False
            if isinstance(node.op, Axis | Symbol | Constant):
                return True
            known = isinstance(node.op, Apply) and node.op.function.name in OF_INDEX
            return known and all(self.indices[a] for a in node.args if a.type.dtype is i64)

        return bottom_up(term, self.indices, compute)

    def value(self, term: Node, type_: str) -> str:
        """A term that has a name or is a literal, as a value of its own type or of the other."""
        if isinstance(term.op, Constant):
            return self.constant(term.op.value, type_)
        own = INDEX if self.is_index(term) else spelled(term.type.dtype)
        found = self.names[term]
        return found if own == type_ else self.let("arith.index_cast", (found,), own, type_)

    def index(self, term: Node) -> str:
        return self.value(term, INDEX)

    def extent(self, extent: Extent) -> str:
        """A size of a shape, computed here where it is no number."""
        if not isinstance(extent, Size):
            return self.constant(extent, INDEX)
        self.compute_all(extent.term)
        return self.index(extent.term)

    def compute_all(self, *terms: Node) -> None:
        """Names terms, and all that they depend on."""
        known: dict[Node, None] = dict.fromkeys(self.names)
        for term in terms:
            bottom_up(term, known, self.compute)

    def compute(self, term: Node) -> None:
        """Names a term whose arguments have names."""
        if nest.is_atom(term):
            return
        if isinstance(term.op, nest.Load):
            self.names[term] = self.load(term, term.op)
            return
        function = op_of(term, Apply).function
        condition = term.args[: function is where]
        values = term.args[len(condition) :]
        dtype, result = values[0].type.dtype, term.type.dtype
        type_ = spelled(dtype)
        if dtype is i64 and all(map(self.is_index, values)):
            converts = result is boolean or CASTS.get(result) is function
            type_ = INDEX if converts or function.name in OF_INDEX else type_
        args = [self.value(c, "i1") for c in condition] + [self.value(v, type_) for v in values]
        self.names[term] = apply(self, function, args, dtype, type_)

    def element(self, buffer: Buffer, index: Sequence[Node]) -> str:
        """An element of a buffer: %x[%i, %j] : its type."""
        name, type_ = self.memory[buffer.name]
        return f"{name}[{', '.join(map(self.index, index))}] : {type_}"

    def load(self, term: Node, op: nest.Load) -> str:
        rank, type_ = op.buffer.type.rank, spelled(op.buffer.type.dtype)
        index, rest = term.args[:rank], term.args[rank:]
        if not op.masked:
            return self.set(f"memref.load {self.element(op.buffer, index)}", "in")
        condition, other = self.value(rest[0], "i1"), self.value(rest[1], type_)
        found = self.fresh("in")
        self.begin(f"{found} = scf.if {condition} -> ({type_}) {{")
        read = self.set(f"memref.load {self.element(op.buffer, index)}", "in")
        self.line(f"scf.yield {read} : {type_}")
        self.end("} else {")
        self.depth += 1
        self.line(f"scf.yield {other} : {type_}")
        self.end()
        return found

    def allocate(self, buffer: Buffer) -> str:
        """Memory for a buffer; the line that frees it."""
        type_, dense = buffer.type, memref(buffer.type)
        flat = TensorType(type_.dtype, (type_.span,))
        held = type_ if type_.layout == row_major(type_.shape) else flat
        sizes = ", ".join(self.extent(n) for n in held.shape if isinstance(n, Size))
        name = self.set(f"memref.alloc({sizes}) : {memref(held)}", buffer.name)
        found = name if held is type_ else self.seen_as(name, memref(held), type_)
        self.memory[buffer.name] = found, dense
        return f"memref.dealloc {name} : {memref(held)}"

    def seen_as(self, name: str, from_: str, type_: TensorType) -> str:
        """Memory from its first element on in another shape."""
        sizes, strides = (self._extents(numbers) for numbers in (type_.shape, type_.layout))
        parts = f"offset: [0], sizes: [{sizes}], strides: [{strides}]"
        return self.set(f"memref.reinterpret_cast {name} to {parts} : {from_} to {memref(type_)}")

    def _extents(self, extents: Sequence[Extent]) -> str:
        return ", ".join(self.extent(n) if isinstance(n, Size) else str(n) for n in extents)


class Nest(Terms):
    """The function of a kernel."""

    def __init__(
        self, kernel: Kernel, name: str, moving: dict[str, set[str]], called: dict[str, str]
    ) -> None:
        super().__init__(called)
        self.kernel, self.name, self.open = kernel, name, list[Fold]()
        own = {b.name: b for b in (*kernel.inputs, *kernel.outputs)}
        moves = moving.get(kernel.name, set[str]())
        self.buffers = {n: (b, memref(b.type, n in moves)) for n, b in own.items()}

    def whole(self) -> str:
        head = self.head(self.name, self.buffers, [*sizes_of(self.kernel).values()])
        try:
            self.block(place(self.kernel.body))
        except UnsupportedOpError as error:
            told = f"kernel {self.kernel.name}: {error.message}"
            raise UnsupportedOpError(told, self.kernel.where) from error
        comments = [f"// {line}" for line in "\n".join(self.kernel.origin).splitlines()]
        return self.text("\n".join([*comments, head]))

    def block(self, body: nest.Block) -> None:
        held: list[str] = []
        for stmt in body:
            if isinstance(stmt, nest.Let):
                self.compute(stmt.term)
            elif isinstance(stmt, For):
                self.loop(stmt)
            elif isinstance(stmt, nest.Update):
                self.update(stmt)
            elif isinstance(stmt, nest.Store):
                self.store(stmt)
            else:
                assert isinstance(stmt, nest.Local)
                held.append(self.allocate(stmt.buffer))
        for line in held:
            self.line(line)

    def loop(self, stmt: For) -> None:
        lo, hi, step = self.index(stmt.lo), self.index(stmt.hi), self.constant(stmt.step, INDEX)
        axis = self.names[stmt.axis] = self.fresh(stmt.label)
        changed = [s.fold for s in nest.walk(stmt.body) if isinstance(s, nest.Update)]
        folds = [*stmt.folds, *(f for f in self.open if f in changed)]
        for fold in stmt.folds:
            start = fold.monoid.identity(fold.dtypes)
            self.carry(fold, [self.value(t, spelled(t.type.dtype)) for t in start])
        if stmt.role == "free" and not folds:
            self.begin(f"scf.parallel ({axis}) = ({lo}) to ({hi}) step ({step}) {{")
            self.block(stmt.body)
            self.end()
            return
        head = f"scf.for {axis} = {lo} to {hi} step {step}"
        if not folds:
            self.begin(f"{head} {{")
            self.block(stmt.body)
            self.end()
            return
        accs = [acc for fold in folds for acc in fold.accs]
        types = ", ".join(spelled(acc.type.dtype) for acc in accs)
        results = [self.fresh(op_of(acc, nest.Acc).label) for acc in accs]
        within = [self.fresh(op_of(acc, nest.Acc).label) for acc in accs]
        pairs = zip(within, (self.names[acc] for acc in accs), strict=True)
        inits = ", ".join(f"{name} = {start}" for name, start in pairs)
        self.begin(f"{', '.join(results)} = {head} iter_args({inits}) -> ({types}) {{")
        self.carry_all(folds, within)
        opened, self.open = self.open, [*self.open, *stmt.folds]
        self.block(stmt.body)
        self.open = opened
        self.line(f"scf.yield {', '.join(self.names[acc] for acc in accs)} : {types}")
        self.end()
        self.carry_all(folds, results)

    def carry(self, fold: Fold, values: Sequence[str]) -> None:
        """Makes these the values of a fold's carriers from here on."""
        self.names.update(zip(fold.accs, values, strict=True))
        self.names.update(zip(fold.running, values, strict=True))

    def carry_all(self, folds: Sequence[Fold], values: Sequence[str]) -> None:
        rest = iter(values)
        for fold in folds:
            self.carry(fold, [next(rest) for _ in fold.labels])

    def update(self, stmt: nest.Update) -> None:
        before, results = dict(self.names), combined(stmt)
        self.compute_all(*results)
        values = [self.value(r, spelled(r.type.dtype)) for r in results]
        self.names = before  # what was computed here reads the carriers' old values
        self.carry(stmt.fold, values)

    def store(self, stmt: nest.Store) -> None:
        dtype = stmt.buffer.type.dtype
        value, type_ = self.value(stmt.value, spelled(dtype)), spelled(dtype)
        if stmt.mask is not None:
            self.begin(f"scf.if {self.value(stmt.mask, 'i1')} {{")
        at = self.element(stmt.buffer, stmt.index)
        if stmt.combines:
            place, _, memory = at.partition(" : ")
            how = COMBINING[stmt.how][dtype.kind]
            self.line(f"memref.atomic_rmw {how} {value}, {place} : ({type_}, {memory}) -> {type_}")
        else:
            self.line(f"memref.store {value}, {at}")
        if stmt.mask is not None:
            self.end()
