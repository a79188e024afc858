"""Programs of the loop level in MLIR: the dialects func, scf, memref, arith, math and cf.

print(to_mlir(program))      # a func.func of memrefs for each kernel; @main calls them in order
mlir_nests.py writes the kernels, mlir_terms.py has the rows of scalar functions.
"""

from collections.abc import Collection

from weft.core.text.graph import fresh
from weft.export.mlir_nests import Nest, Terms, memref, symbol
from weft.export.mlir_text import INDEX
from weft.scalar.nest import Buffer, Call, Kernel, Program
from weft.scalar.repeat import Repeat, Slice
from weft.scalar.resize import sizes_of
from weft.scalar.rows import expanded
from weft.scalar.sizes import Extent, larger

# Names of functions; a kernel's begins with k_, as in C: exp is libm's.
RESERVED = "main", "philox", "lgamma", "lgammaf"


def to_mlir(program: Program) -> str:
    """The text of a module, whose @main takes `parameters(program)`, then its sizes as indices.

    A library call is a function without a body; attributes say what it calls. UnsupportedOpError
    for a scalar function without a row.
    """
    program = expanded(program)
    called: dict[str, str] = {}
    main = _Main(program, called)
    texts = [Nest(k, main.symbols[k.name], main.moving, called).whole() for k in program.kernels]
    whole = main.whole()
    lines = "\n".join([*called.values(), *texts, whole]).rstrip("\n").split("\n")
    return "\n".join(["module {", *(f"  {n}" if n else n for n in lines), "}", ""])


def parameters(program: Program) -> list[Buffer]:
    """The buffers that @main takes: the inputs, and the outputs that are none, each once."""
    return [*{b.name: b for b in (*program.inputs, *program.outputs)}.values()]


class _Main(Terms):
    """The function of the program: it allocates temporary buffers and calls kernels in order."""

    def __init__(self, program: Program, called: dict[str, str]) -> None:
        super().__init__(called)
        self.program = program
        self.functions = {*RESERVED}
        self.symbols = {k.name: fresh(f"k_{k.name}", self.functions) for k in program.kernels}
        self.moving: dict[str, set[str]] = {}  # by kernel: buffers that are slices
        for repeat in program.repeats:
            slices = {s.buffer.name for s in repeat.slices}
            self.moving |= {k.name: slices for k in repeat.steps}

    def whole(self) -> str:
        given = {b.name: (b, memref(b.type)) for b in parameters(self.program)}
        head = self.head("main", given, [*sizes_of(self.program).values()])
        self.types = {name: b.type for name, (b, _) in given.items()}
        freed = [self.allocate(b) for b in self.temporaries(given)]
        for step in self.program.steps:
            if isinstance(step, Repeat):
                self.repeat(step)
            elif isinstance(step, Call):
                self.extern(step)
            else:
                assert isinstance(step, Kernel)
                self.kernel(step)
        for line in freed:
            self.line(line)
        return self.text(head)

    def temporaries(self, given: Collection[str]) -> list[Buffer]:
        """The buffers to allocate, each as the largest of the types that steps see it as."""
        parts = {s.buffer.name for r in self.program.repeats for s in r.slices}
        found: dict[str, Buffer] = {}
        for b in self.program.buffers():
            if b.name in given or b.name in parts:
                continue
            if b.name not in found or _longer(b.type.span, found[b.name].type.span):
                found[b.name] = b
        self.types |= {name: b.type for name, b in found.items()}
        return [*found.values()]

    def kernel(self, step: Kernel) -> None:
        moves = self.moving.get(step.name, set[str]())
        buffers = [*{b.name: b for b in (*step.inputs, *step.outputs)}.values()]
        sizes = [self.names[node] for node in sizes_of(step).values()]
        args = [self.argument(b, b.name in moves) for b in buffers]
        types = [memref(b.type, b.name in moves) for b in buffers] + [INDEX] * len(sizes)
        name = symbol(self.symbols[step.name])
        self.line(f"func.call {name}({', '.join(args + sizes)}) : ({', '.join(types)}) -> ()")

    def argument(self, buffer: Buffer, moves: bool = False) -> str:
        """The memory of a buffer in the type that a step sees it as."""
        (found, have), wanted = self.memory[buffer.name], memref(buffer.type, moves)
        if have == wanted:
            return found
        if buffer.name in self.types and self.types[buffer.name] != buffer.type:
            found, have = self.seen_as(found, have, buffer.type), memref(buffer.type)
        return found if have == wanted else self.cast(found, have, wanted)

    def cast(self, name: str, from_: str, to: str) -> str:
        return self.let("memref.cast", (name,), from_, to)

    def extern(self, step: Call) -> None:
        """A call of a function without a body, whose attributes say what it is."""
        label = fresh(step.target, self.functions)
        buffers = [*step.inputs, *step.outputs]
        types = ", ".join(memref(b.type) for b in buffers)
        facts = {"target": step.target, "arguments": step.arguments.shown()}
        shown = ", ".join(f"{key} = {_quoted(text)}" for key, text in facts.items())
        head = f"func.func private {symbol(label)}({types}) attributes {{{shown}}}\n"
        self.called[label] = head
        args = ", ".join(self.argument(b) for b in buffers)
        self.line(f"func.call {symbol(label)}({args}) : ({types}) -> ()")

    def repeat(self, step: Repeat) -> None:
        lo, hi, by = (self.constant(n, INDEX) for n in (0, step.count, 1))
        turn = self.fresh("t")
        self.begin(f"scf.for {turn} = {lo} to {hi} step {by} {{")
        for part in step.slices:
            self.memory[part.buffer.name] = self.slice(part, turn, step.count)
        for kernel in step.steps:
            self.kernel(kernel)
        self.end()

    def slice(self, part: Slice, turn: str, count: int) -> tuple[str, str]:
        """What a buffer of repeated kernels is, as Slice.place says, and its type."""
        type_, rows = part.whole.type, part.whole.type.shape[0]
        step, first = part.step % rows, part.at % rows
        row = (
            turn if step == 1 else self.let("arith.muli", (turn, self.constant(step, INDEX)), INDEX)
        )
        if first:
            row = self.let("arith.addi", (row, self.constant(first, INDEX)), INDEX)
        row = self.let("arith.remui", (row, self.constant(rows, INDEX)), INDEX)
        offsets, sizes = [row, *["0"] * (type_.rank - 1)], f"1, {self._extents(type_.shape[1:])}"
        ones = ", ".join(["1"] * type_.rank)
        window = f"[{', '.join(offsets)}] [{sizes.rstrip(', ')}] [{ones}]"
        whole, wanted = self.argument(part.whole), memref(part.buffer.type, True)
        found = self.set(f"memref.subview {whole}{window} : {memref(type_)} to {wanted}", "part")
        for end, other in ((0, part.first), (count - 1, part.last)):
            if other is not None:
                here = self.compare("eq", turn, self.constant(end, INDEX), INDEX)
                own = self.cast(self.argument(other), memref(other.type), wanted)
                found = self.select(here, own, found, wanted)
        return found, wanted


def _longer(span: Extent, other: Extent) -> bool:
    """Whether one buffer is longer than another; of sizes, where it is so for all."""
    return larger(span, other) is not other and span != other


def _quoted(text: str) -> str:
    """A string attribute."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
