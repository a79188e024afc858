"""Writes kernels in C: one walk over the placed nest, one table of spellings.

text = emit_kernel(kernel, "k_relu")      # a whole file: `void k_relu(const f32 *restrict x, ...)`
Names of the vector functions are those of runtime/weft_vector.h: op, dtype, lanes.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from weft.core.node import Node, bottom_up, op_of
from weft.emit.spelling import element, suffix
from weft.emit.terms import Terms, is_dot, only_widened, unnamed
from weft.kernel.ops import VectorLoad, VectorStore
from weft.scalar import nest
from weft.scalar.affine import linear
from weft.scalar.blocks import locals_in, nodes
from weft.scalar.intervals import bounds
from weft.scalar.ops import apply, has_symbol
from weft.scalar.placing import place
from weft.scalar.resize import sizes_of
from weft.scalar.sizes import Extent, Size
from weft.scalar.structure import is_checked
from weft.scalar.symbols import linear_bounds
from weft.scalar.updates import combined, is_product

STACK_BYTES = 8 << 10  # a larger local buffer lives in the worker's scratch memory


@dataclass
class _Function:
    """A C function as it is written: its lines, parameters and scratch memory."""

    lines: list[str] = field(default_factory=list)
    captured: dict[str, str] = field(default_factory=dict)  # name -> C declaration
    own: set[str] = field(default_factory=set)
    scratch: Extent = 0  # bytes in use, from the start of the worker's


class Emitter(Terms):
    """Writes one kernel. Parallel loops become functions of their own."""

    integer = "i64"  # of loops
    parameter = "{const}{type} *restrict {name}"
    unroll, fence = "#pragma GCC unroll 4", ' __asm__ volatile("" ::: "memory");'

    def __init__(self, kernel: nest.Kernel, symbol: str, reserved: Collection[str] = ()) -> None:
        super().__init__()
        self.kernel, self.symbol = kernel, symbol
        self.spelt.taken.update(reserved)  # names beyond C's
        for buffer in (*kernel.inputs, *kernel.outputs):
            self.spelt.of(buffer.name)
        self.types: dict[str, str] = {}
        self.functions: list[str] = []
        self.scratch = 0  # bytes that any function uses: asked for at once, so that none moves
        held = (b for b in locals_in(kernel.body) if not on_stack(b))
        self.total: Any = sum(map(aligned, held))  # those, where sizes decide
        self.current = _Function()
        self.numbers = {"in": count(), "v": count()}  # of names of loads, and of other terms
        self.kept: Collection[Node] = ()

    # ---- names

    def declare(self, name: str, type_: str) -> str:
        self.types[name] = type_
        self.current.own.add(name)
        return name

    def use(self, name: str) -> str:
        """A name as seen here: taken from the enclosing function when it is not our own."""
        if name not in self.current.own:
            self.current.captured[name] = self.types[name]
        return name

    def fresh(self, term: Node) -> str:
        stem = "in" if isinstance(term.op, nest.Load | VectorLoad) else "v"
        return self.spelt.fresh(f"{stem}{next(self.numbers[stem])}")

    # ---- statements

    def block(self, stmts: nest.Block, depth: int) -> None:
        for stmt in stmts:
            match stmt:
                case nest.Let(term=term):
                    self.let(term, depth)
                case nest.For():
                    self.loop(stmt, depth)
                case nest.Update():
                    self.update(stmt, depth)
                case nest.Local(buffer=buffer):
                    self.local(buffer, depth)
                case nest.Store() | VectorStore():
                    self.line(depth, self.store(stmt))
                case _:
                    self.other(stmt, depth)

    def other(self, stmt: nest.Stmt, depth: int) -> None:
        raise AssertionError(f"{type(stmt).__name__} at the kernel level")

    def let(self, term: Node, depth: int) -> None:
        text, type_ = self.value(term), self.type_of(term.type)
        if term in self.kept:
            text = f"kept_{suffix(term.type.dtype, term.type.lanes)}({text})"
        self.names[term] = self.declare(self.fresh(term), type_)
        self.line(depth, f"const {type_} {self.names[term]} = {text};")

    def line(self, depth: int, text: str) -> None:
        self.current.lines.append("    " * depth + text)

    def loop(self, stmt: nest.For, depth: int) -> None:
        for fold in stmt.folds:
            self.identity(fold, depth)
        low, high = bounds(stmt.lo, self.ranges)[0], bounds(stmt.hi, self.ranges)[1] - 1
        self.ranges[stmt.axis] = low, max(low, high)
        if stmt.bind not in nest.ORDERED:
            self.parallel(stmt, depth)
        elif stmt.extent == 1 and _needs_no_loop(stmt):
            self.block(stmt.body, depth)
        else:
            self.serial(stmt, depth)

    def serial(self, stmt: nest.For, depth: int) -> None:
        name = self.declare(self.variable(stmt.label), self.integer)
        lo, hi = self.index(stmt.lo), self.index(stmt.hi)
        step = f"{name}++" if stmt.step == 1 else f"{name} += {stmt.step}"
        extent = apply("subtract", stmt.hi, stmt.lo)
        # what is left of blocks that a size ends is one iteration at most
        if has_symbol(extent) and linear_bounds(*linear(extent), self.ranges)[1] <= stmt.step:
            self.line(depth, f"if ({lo} < {hi}) {{")
            self.line(depth + 1, f"const {self.integer} {name} = {lo};")
        else:
            if stmt.bind == "unroll":
                self.line(depth, self.unroll)
            fence = self.fence if stmt.bind == "fenced" else ""
            self.line(depth, f"for ({self.integer} {name} = {lo}; {name} < {hi}; {step}) {{{fence}")
        self.block(stmt.body, depth + 1)
        self.line(depth, "}")

    def identity(self, fold: nest.Fold, depth: int) -> None:
        for acc, start in zip(fold.accs, fold.monoid.identity(fold.dtypes), strict=True):
            type_, value = self.type_of(acc.type), self.wide(start, acc.type)
            name = self.declare(self.variable(op_of(acc, nest.Acc).label), type_)
            self.line(depth, f"{type_} {name} = {value};")

    def within(self, term: Node) -> bool:
        """Terms that are written where they are used."""
        return False

    def update(self, stmt: nest.Update, depth: int) -> None:
        fold, results = stmt.fold, combined(stmt)

        def is_simple(a: Node) -> bool:
            return nest.is_atom(a) or a in self.names or self.within(a) or is_dot(a)

        if len(results) == 1 and all(map(is_simple, results[0].args)):
            name = self.use(self.variable(fold.labels[0]))
            self.line(depth, f"{name} = {self.value(results[0])};")
            return
        self.line(depth, "{")
        named: list[Node] = []
        known: dict[Node, None] = dict.fromkeys(self.names)

        def let(term: Node) -> None:
            if not nest.is_atom(term) and not self.within(term):
                self.let(term, depth + 1)
                named.append(term)

        for result in results:
            bottom_up(result, known, let)
        values = [self.wide(r, a.type) for r, a in zip(results, fold.accs, strict=True)]
        for label, value in zip(fold.labels, values, strict=True):
            self.line(depth + 1, f"{self.use(self.variable(label))} = {value};")
        for term in named:  # they hold the accumulators' old values
            del self.names[term]
        self.line(depth, "}")

    def local(self, buffer: nest.Buffer, depth: int) -> None:
        name, type_ = self.spelt.of(buffer.name), element(buffer.type.dtype)
        self.declare(name, f"{type_} *")
        if on_stack(buffer):
            array = f"{name}[{max(buffer.type.span, 1)}]"
            self.line(depth, f"{type_} {array} __attribute__((aligned(64)));")
            return
        at = self.extent(self.current.scratch)
        self.line(depth, f"{type_} *const {name} = ({type_} *)(scratch + {at});")
        self.current.scratch += aligned(buffer)
        if isinstance(self.total, int):
            self.scratch = max(self.scratch, self.current.scratch)  # type: ignore[type-var]
        self.extent(self.total)  # which is asked for in the same function

    def parallel(self, stmt: nest.For, depth: int) -> None:
        """Outline the loop's body; its captured names travel in a struct."""
        outer = self.current  # its scratch stays its own: the caller runs a share of the body too
        self.current = _Function(scratch=outer.scratch)
        self.line(1, "for (i64 turn = begin; turn < end; turn++) {")
        self.iteration(stmt, "turn", 2)
        self.line(1, "}")
        inner, self.current = self.current, outer
        number = len(self.functions)
        self.functions.append(self._worker(inner, number))
        lo, hi = self.index(stmt.lo), self.index(stmt.hi)
        span = hi if lo == "0" else f"{hi} - {lo}"
        turns = span if stmt.step == 1 else f"({span} + {stmt.step - 1}) / {stmt.step}"
        if stmt.extent is not None:  # the sum of two of C's ints may wrap
            turns = str(-(-stmt.extent // stmt.step))
        names = ", ".join(self.use(name) for name in inner.captured)
        args = self.spelt.fresh(f"args{number}")
        self.line(depth, f"struct {self.symbol}_args{number} {args} = {{{names}}};")
        each = "weft_for_checked" if is_checked(stmt.body) else "weft_for"
        grain = "1" if stmt.grain is None else self.index(stmt.grain)
        self.line(depth, f"{each}({turns}, {grain}, {self.symbol}_body{number}, &{args});")

    def scratch_bytes(self) -> str:
        """The bytes that a function asks for: of all functions together."""
        return self.extent(self.total) if isinstance(self.total, Size) else "scratch_bytes"

    def iteration(self, stmt: nest.For, turn: str, depth: int) -> None:
        """The body of a loop in its iteration of that number."""
        name, lo = self.declare(self.variable(stmt.label), self.integer), self.index(stmt.lo)
        at = turn if stmt.step == 1 else f"{turn} * {stmt.step}"
        self.line(depth, f"const {self.integer} {name} = {at if lo == '0' else f'{lo} + {at}'};")
        self.block(stmt.body, depth)

    def _worker(self, inner: _Function, number: int) -> str:
        fields = [f"    {self._field(t)}{n};" for n, t in inner.captured.items()]
        unpack = [f"    {self._field(t)}{n} = p->{n};" for n, t in inner.captured.items()]
        args = f"{self.symbol}_args{number}"
        name = f"{self.symbol}_body{number}"
        # One thread runs what many run: a copy inlined for it would double the compiler's work.
        once = "static __attribute__((noinline)) "
        head = f"{once}void {name}(void *args, i64 begin, i64 end, int worker) {{"
        first = [f"    const struct {args} *const p = args;", "    (void)p, (void)worker;"]
        struct = [f"struct {args} {{", *(fields or ["    int none;"]), "};"]
        body = [*first, *unpack, *_whole(inner, self.scratch_bytes())]
        return "\n".join([*struct, head, *body, "}", ""])

    @staticmethod
    def _field(type_: str) -> str:
        """Declaration of a captured name: pointers stay restrict."""
        return f"{type_}restrict const " if type_.endswith("*") else f"const {type_} "

    # ---- the file

    def parameters(self) -> list[str]:
        found: list[str] = []
        for number, buffer in enumerate((*self.kernel.inputs, *self.kernel.outputs)):
            const = "const " if buffer not in self.kernel.outputs else ""
            type_ = element(buffer.type.dtype)
            name = self.declare(self.spelt.of(buffer.name), f"{const}{type_} *")
            found.append(self.parameter.format(const=const, type=type_, name=name, number=number))
        return found

    def take_sizes(self, parameters: list[str], order: Sequence[str] = ()) -> Iterator[str]:
        """Add the array of the program's sizes, and read from it the ones that the kernel uses."""
        own = sizes_of(self.kernel)
        name = self.spelt.fresh("sizes")
        parameters += [f"const i64 *restrict {name}"] if own else []
        for label in own:
            size = self.declare(self.variable(label), self.integer)
            yield f"    const {self.integer} {size} = {name}[{order.index(label)}];"

    def file(self, order: Sequence[str]) -> str:
        parameters = self.parameters()
        sizes = list(self.take_sizes(parameters, order))
        widened = only_widened(self.kernel.body)
        body = place(self.kernel.body, lambda term: unnamed(term) or term in widened)
        self.kept = _shared(body)
        self.block(body, 1)
        self.names.clear()  # a function asks for scratch memory first
        head = f"void {self.symbol}({', '.join(parameters) or 'void'}) {{"
        function = [head, *sizes, *_whole(self.current, self.scratch_bytes()), "}", ""]
        size = [f"enum {{ scratch_bytes = {self.scratch} }};"] if self.scratch else []
        first = ['#include "weft.h"', *self.includes(body), *size]
        return "\n".join([*first, *self.functions, *function])

    def includes(self, body: nest.Block) -> Iterator[str]:
        stores = (s.lanes for s in nest.walk(body) if isinstance(s, VectorStore))
        for lanes in sorted({1, *stores, *(t.type.lanes for t in nodes(body))}):
            yield f'#define WEFT_LANES {lanes}\n#include "weft_math.h"'


def _shared(body: nest.Block) -> set[Node]:
    """Vectors from memory that several products read which are added up."""
    products = [s for s in nest.walk(body) if isinstance(s, nest.Update) and is_product(s)]
    read = Counter(v for s in products for v in {*s.values} if isinstance(v.op, VectorLoad))
    return {v for v, products in read.items() if products > 1}


def _needs_no_loop(stmt: nest.For) -> bool:
    """Whether a loop of one iteration can be written without a loop or a scope."""
    own = any(isinstance(s, nest.Local) for s in stmt.body)
    return not own and stmt.axis not in nodes(stmt.body)


def on_stack(buffer: nest.Buffer) -> bool:
    return not isinstance(buffer.bytes, Size) and buffer.bytes <= STACK_BYTES


def aligned(buffer: nest.Buffer) -> Any:
    return (buffer.bytes + 63) // 64 * 64


def _whole(function: _Function, scratch_bytes: str) -> list[str]:
    """Its lines between its hold on the worker's scratch and its fence, where it needs them."""
    text = "\n".join(function.lines)
    hold = f"    char *const scratch = weft_scratch({scratch_bytes});"
    first = [hold] if "(scratch + " in text else []
    last = ["    weft_fence();"] if " stream_" in text else []  # such stores are in no order
    return [*first, *function.lines, *last]


def emit_kernel(kernel: nest.Kernel, symbol: str, sizes: Sequence[str] = ()) -> str:
    """One C file that defines `symbol` over the kernel's inputs, its outputs, and the sizes."""
    return Emitter(kernel, symbol).file(sizes)
