"""Writes kernels for GPUs: one thread's program, in the functions of the preludes in runtime/gpu/.

launch = emit_gpu(kernel, "k_relu", CUDA)      # .source, .grid, .block
What a language spells in its own way is in its row of languages.py, or in its prelude.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.core.errors import WeftError
from weft.core.node import Node
from weft.core.types import DType, ScalarType, boolean
from weft.emit.boxes import ALIGNMENT, Boxes, Map, product
from weft.emit.c import Emitter
from weft.emit.languages import CUDA, Language
from weft.emit.spelling import element, register
from weft.emit.terms import bare, inline, narrows, packed, unnamed
from weft.kernel import ops as vectors
from weft.kernel.ops import AsyncWait, Barrier, Box, LoadMatrices, Mma, VectorLoad, VectorStore
from weft.scalar import nest
from weft.scalar.affine import from_linear, linear
from weft.scalar.blocks import locals_in, loops_in, nodes
from weft.scalar.index import simplify
from weft.scalar.intervals import Interval, bounds
from weft.scalar.ops import apply, function_of, subtract
from weft.scalar.placing import place
from weft.scalar.resize import sizes_of
from weft.scalar.sizes import Size, size
from weft.scalar.structure import is_checked
from weft.scalar.text.terms import COMPARISONS
from weft.targets.gpu import STATIC

SMALL = 2**31
BARRIER = 1024  # bytes that the barrier of the copy engine takes, where arrays start at as many
INFIX = {**COMPARISONS, "add": "+", "subtract": "-", "multiply": "*", "divide": "/"}  # of floats


@dataclass(frozen=True)
class Launch:
    """A kernel's text and launch configuration: grid, block, dynamic shared memory.

    `sizes` are those it takes, by value, behind its buffers; a grid that they decide is text. With
    `faults` the last parameter is an i32 where checks put what they find, see FAULTS.
    """

    source: str
    grid: Any
    block: int
    faults: bool = False
    shared_bytes: int = 0  # of a block's threads
    dynamic_bytes: int = 0  # of these, what the launch has to ask for
    maps: tuple[Map, ...] = ()  # further operands, behind the buffers and sizes
    sizes: tuple[str, ...] = ()
    checked: bool = False  # whether it may find a fault; of some checks the lowering proves


class GPUEmitter(Emitter):
    """Writes one kernel: the walk of the C emitter, with grids, blocks and threads added."""

    unroll, fence = "#pragma unroll", ""

    def __init__(self, kernel: nest.Kernel, symbol: str, language: Language) -> None:
        super().__init__(kernel, symbol, language.reserved)
        self.language, self.parameter = language, language.buffer
        self.checked = is_checked(kernel.body)
        self.faults = bool(language.faults) and self.checked
        self.grid = [turns(loop) for loop in loops_in(kernel.body, "grid")]
        self.bound = 0  # loops of the grid around
        self.threads = 1
        self.integer = "i32" if self.is_small() else "i64"
        stores = (s for s in nest.walk(kernel.body) if isinstance(s, nest.Store | VectorStore))
        parts = (*nest.walk(kernel.body), *(term.op for term in nodes(kernel.body)))
        self.wide_access = {p.buffer for p in parts if isinstance(p, VectorLoad | VectorStore)}
        self.copied = {s.value for s in stores if s.how == "async"}  # no register holds them
        self.boxes = Boxes(kernel, language, self.spelt)
        self.packed = packed(kernel.body)
        self.declared: set[str] = set()  # axes that stand for a loop of one iteration
        self.shared: dict[str, None] = {}  # arrays whose place is where the kernel begins
        self.shared_bytes: dict[str, int] = {}  # of all such arrays
        self.places = self.placed() if language.dynamic else {}

    def placed(self) -> dict[nest.Buffer, int]:
        """Where shared arrays begin in what the launch asks for, if they are too many for less."""
        places, total = dict[nest.Buffer, int](), 0
        held = dict.fromkeys(locals_in(self.kernel.body))
        for buffer in (b for b in held if b.space == "shared"):
            unit = self.alignment(buffer)
            places[buffer] = -(-total // unit) * unit
            total = places[buffer] + -(-buffer.bytes // 16) * 16
        return places if total + BARRIER * bool(self.boxes.names) > STATIC else {}

    def alignment(self, buffer: nest.Buffer) -> int:
        """Bytes that a shared array starts at a multiple of."""
        return ALIGNMENT if buffer in self.boxes.slabs else 16

    def is_small(self) -> bool:
        """Whether 32 bits hold every index, and every loop's axis beyond its end."""
        ranges: dict[Node, Interval] = {}
        for loop in loops_in(self.kernel.body):
            low, high = bounds(loop.lo, ranges)[0], bounds(loop.hi, ranges)[1]
            if high + loop.step >= SMALL:
                return False
            ranges[loop.axis] = low, max(low, high - 1)
        reach = (bounds(t, ranges) for t in nodes(self.kernel.body) if inline(t))
        return all(low > -SMALL and high < SMALL for low, high in reach)

    # ---- spelling

    def offset(self, buffer: nest.Buffer, where: Node) -> str:
        if not buffer.swizzle:
            return super().offset(buffer, where)
        self.word("boxes")
        size = buffer.type.dtype.bytes
        period = 8 * buffer.swizzle // size  # of the pattern: what are multiples of it stays apart
        terms, offset = linear(where)
        whole = {a: n for a, n in terms.items() if n % period == 0}
        rest = {a: n for a, n in terms.items() if a not in whole}
        inside = self.index(from_linear(rest, offset % period))
        outside = self.index(from_linear(whole, offset - offset % period))
        return f"(swizzle<{buffer.swizzle}, {size}>({inside})) + {outside}".removesuffix(" + 0")

    def within(self, term: Node) -> bool:
        """Terms that are written where they are used."""
        held = isinstance(term.op, vectors.Matrix) or bare(term)
        return held or term in self.copied or term in self.packed or unnamed(term)

    def atom(self, term: Node) -> str:
        return self.value(term) if bare(term) and term not in self.names else super().atom(term)

    def type_of(self, type_: ScalarType) -> str:
        if type_.lanes > 1:  # as it lies in memory
            return f"{element(type_.dtype)}x{type_.lanes}"
        return str(register(type_.dtype))

    def literal(self, value: float, dtype: DType) -> str:
        if dtype is boolean:
            return "true" if value else "false"
        if dtype.is_float and not math.isfinite(value):
            bits = int(np.array(value, dtype.numpy).view(f"u{dtype.bytes}"))
            return self.language.bits[dtype].format(bits)
        return super().literal(value, dtype)

    def value(self, term: Node) -> str:
        if isinstance(term.op, vectors.ThreadXor):
            value, distance = self.atom(term.args[0]), term.op.distance
            return self.word("exchange").format(value=value, distance=distance)
        if isinstance(term.op, vectors.Extract):
            vector, lane = self.atom(term.args[0]), term.op.lane
            text = self.language.lane.format(vector=vector, lane=lane)
            return self.out_of(text, term.type.dtype)
        if isinstance(term.op, LoadMatrices):
            at, across = self.pointer(term.op.buffer, term.args[0]), str(term.op.across).lower()
            return f"load_matrices<{term.op.lanes}, {across}>({at})"
        if isinstance(term.op, vectors.Pack):
            return self.vector(list(term.args), term.type)
        return super().value(term)

    def joined(self, parts: Sequence[Node]) -> str:
        """Vectors as one."""
        texts = ", ".join(map(self.atom, parts))
        return f"join({texts})" if len(parts) > 1 else texts

    def out_of(self, text: str, dtype: DType) -> str:
        """An element of a vector as a value in a register."""
        if dtype is boolean:
            return f"({text} != 0)"
        return text if register(dtype) is dtype else f"cast_{dtype}_{register(dtype)}({text})"

    def vector(self, values: list[Node], type_: ScalarType) -> str:
        """Values as the elements of a vector."""
        texts = ", ".join(self.element(v, type_.dtype) for v in values)
        return self.language.vector.format(type=self.type_of(type_), values=texts)

    def element(self, value: Node, dtype: DType) -> str:
        """A value as an element of a vector."""
        if value in self.packed:
            return f"*({self.pointer(value.op.buffer, value.args[0])})"  # type: ignore[attr-defined]
        text = self.atom(value.args[0] if narrows(value) else value)
        if dtype is boolean:
            return f"(u8){text}"
        return text if register(dtype) is dtype else f"cast_{register(dtype)}_{dtype}({text})"

    def load(self, term: Node) -> str:
        if not isinstance(term.op, VectorLoad):
            return super().load(term)
        buffer, type_ = term.op.buffer, self.type_of(term.type)
        fields = {"type": type_, "space": self.language.spaces[buffer.space]}
        text = self.language.load.format(at=self.pointer(buffer, term.args[0]), **fields)
        if not term.op.masked:
            return text
        other = self.vector([term.args[2]] * term.op.lanes, term.type)
        return f"{self.atom(term.args[1])} ? {text} : {other}"

    def store(self, stmt: nest.Store | VectorStore) -> str:
        if isinstance(stmt, nest.Store):
            return self.copy(stmt, stmt.index[0], 1) if stmt.how == "async" else super().store(stmt)
        if stmt.how == "async":
            return self.copy(stmt, stmt.index, stmt.lanes)
        type_ = self.type_of(ScalarType(stmt.buffer.type.dtype, stmt.lanes))
        fields = {"type": type_, "space": self.language.spaces[stmt.buffer.space]}
        at, value = self.pointer(stmt.buffer, stmt.index), self.atom(stmt.value)
        text = self.language.store.format(at=at, value=value, **fields)
        return text if stmt.mask is None else f"if ({self.atom(stmt.mask)}) {text}"

    def copy(self, stmt: nest.Store | VectorStore, index: Node, lanes: int) -> str:
        """A copy from global to shared memory that no register holds; zeros where none is read."""
        value, size = stmt.value, lanes * stmt.buffer.type.dtype.bytes
        if isinstance(stmt, VectorStore) and isinstance(value.op, Box):
            self.word("boxes")
            whole = replace(stmt.buffer, swizzle=0)  # a box starts where the pattern does
            at = [self.index(start) for start in value.args]
            return self.boxes.start(stmt, self.pointer(whole, index), at)
        assert isinstance(value.op, nest.Load | VectorLoad), "an async store copies"
        ends = [self.pointer(stmt.buffer, index), self.pointer(value.op.buffer, value.args[0])]
        some = [f"{self.atom(value.args[1])} ? {size} : 0"] if value.op.masked else []
        text = f"{self.word('copies')}_{size}({', '.join([*ends, *some])});"
        return text if stmt.mask is None else f"if ({self.atom(stmt.mask)}) {text}"

    def wide(self, term: Node, like: ScalarType) -> str:
        return self.atom(term)

    def apply(self, term: Node) -> str:
        function, dtype = term.op.function.name, term.args[0].type.dtype  # type: ignore[attr-defined]
        if function in (INFIX if register(dtype).is_float else COMPARISONS):
            a, b = map(self.atom, term.args)
            return f"{a} {INFIX[function]} {b}"
        return super().apply(term)

    # ---- statements

    def other(self, stmt: nest.Stmt, depth: int) -> None:
        if isinstance(stmt, Barrier):
            self.line(depth, self.word("barrier"))
        elif isinstance(stmt, Mma) and stmt.sums[0].lanes > 1:
            sums = self.use(self.variable(stmt.sums[0].labels[0]))
            self.lines(depth, product(stmt, self.word("groups"), sums, self.pointer))
        elif isinstance(stmt, Mma):
            sums = [self.use(self.variable(f.labels[0])) for f in stmt.sums]
            sides = [self.joined(side) for side in (stmt.left, stmt.right)]
            self.line(depth, f"{self.word('products')}({', '.join((*sums, *sides))});")
        elif isinstance(stmt, AsyncWait):
            if any(not isinstance(v.op, Box) for v in self.copied):
                ends = ("commit", f"wait<{stmt.pending}>")
                self.lines(depth, (f"{self.word('copies')}_{end}();" for end in ends))
            if self.boxes.names:
                self.lines(depth, self.boxes.wait(stmt.pending))
        else:
            super().other(stmt, depth)

    def identity(self, fold: nest.Fold, depth: int) -> None:
        if fold.lanes == 1:
            super().identity(fold, depth)
            return
        (type_,) = fold.dtypes
        name = self.declare(self.variable(fold.labels[0]), str(type_))
        self.line(depth, f"{type_} {name}[{fold.lanes}] = {{}};")

    def lines(self, depth: int, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(depth, text)

    def local(self, buffer: nest.Buffer, depth: int) -> None:
        type_ = element(buffer.type.dtype)
        name = self.declare(self.spelt.of(buffer.name), f"{type_} *")
        space = self.language.spaces[buffer.space]
        aligned = self.language.aligned.format(bytes=self.alignment(buffer))
        aligned = aligned if buffer in self.wide_access else ""
        array = f"{space}{aligned}{type_} {name}[{max(buffer.type.span, 1)}];"
        if buffer in self.places:
            array = f"{type_} *const {name} = ({type_} *)"
            array += f"({self.language.dynamic} + {self.places[buffer]});"
        if buffer.space == "shared":
            self.shared_bytes[name] = buffer.bytes
        if buffer.space == "shared" and self.language.outermost:
            self.shared[f"    {array}"] = None
        else:
            self.line(depth, array)

    def serial(self, stmt: nest.For, depth: int) -> None:
        """A loop; of one iteration at most, its body under a condition."""
        spans = self.spans(stmt)
        if min(-(-most // stmt.step) for _, most in spans.values()) > 1:
            super().serial(stmt, depth)
            return
        name = self.declare(self.variable(stmt.label), self.integer)
        ends = [self.index(end) for end, (least, _) in spans.items() if least < 1]
        named = bool(ends) or stmt.axis in nodes(stmt.body)
        first = f"const {self.integer} {name} = {self.index(stmt.lo)};" if named else ""
        self.guarded(first, " && ".join(f"{name} < {end}" for end in ends), stmt.body, depth)

    def guarded(self, first: str, condition: str, body: nest.Block, depth: int) -> None:
        """The body of a loop of one iteration at most, in a scope of its own where it needs one."""
        name = first.partition(" = ")[0]
        names = [name, *(s.buffer.name for s in body if isinstance(s, nest.Local))]
        again = any(n in self.declared for n in names)
        self.declared.update(n for n in names if n)
        test = f"if ({condition}) {{" if condition else ""
        inner = depth
        for text in filter(None, ("{" if again else "", first, test)):
            self.line(inner, text)
            inner += text.endswith("{")
        self.block(body, inner)
        for i in range(inner - 1, depth - 1, -1):
            self.line(i, "}")

    def spans(self, stmt: nest.For) -> dict[Node, Interval]:
        """How far each of a loop's ends is from its start."""
        ends = stmt.hi.args if function_of(stmt.hi) == "minimum" else (stmt.hi,)
        gaps = {end: simplify(apply(subtract, end, stmt.lo), self.ranges) for end in ends}
        return {end: bounds(gap, self.ranges) for end, gap in gaps.items()}

    def parallel(self, stmt: nest.For, depth: int) -> None:
        """A loop whose iterations are blocks of the grid, or threads of a block."""
        if stmt.bind == "grid":
            at = self.block_of()
        elif stmt.bind == "thread":
            self.threads, at = turns(stmt), self.language.thread
        else:  # a lane that is alone
            assert turns(stmt) == 1, f"{stmt.bind} loop {stmt.label} has several iterations"
            at = "0"
        self.iteration(stmt, at, depth)

    def block_of(self) -> str:
        """Which iteration of the next loop of the grid a block is: the outermost moves slowest."""
        outer, (own, *inner) = self.grid[: self.bound], self.grid[self.bound :]
        left = math.prod(inner)
        wide = "(i64)" if self.integer == "i64" else ""  # before it is multiplied
        block = f"{wide}{self.language.block}"
        whole = f"{block} / {self.number(left)}" if left != 1 else block
        self.bound += 1
        return f"{whole} % {self.number(own)}" if math.prod(outer) != 1 else whole

    def number(self, turns: Any) -> str:
        return f"({self.index(turns.term)})" if isinstance(turns, Size) else str(turns)

    def take_sizes(self, parameters: list[str], order: Sequence[str] = ()) -> Iterator[str]:
        """Add a parameter for each size that the kernel uses, in the type of its indices."""
        for label in sizes_of(self.kernel):
            name, size = self.spelt.fresh(f"{label}_size"), self.variable(label)
            parameters.append(self.language.size.format(name=name, number=len(parameters)))
            yield f"    const {self.integer} {self.declare(size, self.integer)} = {name};"

    # ---- the file

    def word(self, field: str) -> str:
        """How the language says it; WeftError where it has no word."""
        if not getattr(self.language, field):
            raise self.refusal(f"needs {field}")
        return getattr(self.language, field)

    def refusal(self, what: str) -> WeftError:
        there = f"which {self.language.title} has not: choose another target"
        return WeftError(f"kernel {self.kernel.name} {what}, {there}", *self.kernel.origin[:1])

    def launch(self, meaning: Sequence[str]) -> Launch:
        for term in nodes(self.kernel.body):
            if self.language.lacks(term.type.dtype):
                raise self.refusal(f"computes in {term.type.dtype}")
        parameters = self.parameters()
        sizes = list(self.take_sizes(parameters))
        parameters += self.boxes.parameters
        if self.faults:
            parameters.append(self.language.faults.format(number=len(parameters)))
        self.block(place(self.kernel.body, self.within), 1)
        fields = {"symbol": self.symbol, "parameters": ", ".join(parameters)}
        head = self.language.kernel.format(threads=self.threads, **fields) + " {"
        comment = [f"// {line}" for line in meaning]
        first = [f"    {line}" for line in self.boxes.head] if self.boxes.names else []
        body = [head, *self.shared, *sizes, *first, *self.current.lines, "}", ""]
        source = "\n".join([f'#include "{self.language.prelude}"', "", *comment, *body])
        total = sum(self.shared_bytes.values())
        dynamic = max((at + b.bytes for b, at in self.places.items()), default=0)
        total = max(total, dynamic) + BARRIER * bool(first)
        grid: Any = math.prod(self.grid)
        grid = str(grid) if isinstance(grid, Size) else grid
        facts = self.faults, total, dynamic, tuple(self.boxes.names), tuple(sizes_of(self.kernel))
        return Launch(source, grid, self.threads, *facts, self.checked)


def turns(loop: nest.For) -> Any:
    """Iterations of a loop over blocks or threads, a number or a size."""
    extent = size(apply(subtract, loop.hi, loop.lo))
    return (extent + loop.step - 1) // loop.step


def emit_gpu(
    kernel: nest.Kernel, symbol: str, language: Language = CUDA, meaning: Sequence[str] = ()
) -> Launch:
    """One file that defines `symbol` over the kernel's inputs, then its outputs.

    `meaning` stands above it: the lines of the loop level.
    """
    return GPUEmitter(kernel, symbol, language).launch(meaning)
