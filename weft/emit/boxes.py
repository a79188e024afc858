"""Writes what engines of a multiprocessor do: copies by TMA, products by a warpgroup.

boxes.start(copy, "x_s0 + 2048", ["b0", "k0"])      # if (threadIdx.x == 0) { tma_load_2d(..); }
boxes.wait(0)                                       # mbarrier_wait(&arrived, phase);
product(mma, "wgmma", "acc0", pointer)      # wgmma_bf16<128, false, true>(acc0, .. + 2 * k, ..);
A copy has a tensor map, and an mbarrier that it arrives at. The first thread starts the copies of a
block. Where all wait it arrives at the barrier, which ends a phase of that, however many copies it
had. Where some copies stay under way, others have barriers of their own, in turn: `begun` and
`done` count phases.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from weft.core.node import Node, op_of
from weft.emit.languages import Language
from weft.emit.spelling import Names
from weft.kernel.ops import AsyncWait, Box, Matrix, Mma, VectorStore
from weft.scalar.nest import Buffer, Kernel, walk

ALIGNMENT = 1024  # bytes: where the pattern of a swizzle starts
STEP = 16  # of the depth that an instruction of a warpgroup takes


class Map(NamedTuple):
    """A tensor map: of an operand of the kernel, by its number, the boxes of these sides.

    NumPy's name of the element type; sizes, strides in bytes, sides: outermost dimension first.
    """

    operand: int
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    sides: tuple[int, ...]
    swizzle: int  # in bytes


class Boxes:
    """The TMA copies of one kernel."""

    def __init__(self, kernel: Kernel, language: Language, names: Names) -> None:
        self.language, self.first = language, f"if ({language.thread} == 0)"
        stores = (s for s in walk(kernel.body) if isinstance(s, VectorStore))
        copies = [s for s in stores if isinstance(s.value.op, Box)]
        self.slabs = {s.buffer for s in copies}
        self.operands = (*kernel.inputs, *kernel.outputs)
        self.names: dict[Map, str] = {}
        for copy in copies:
            found = self.map_of(copy)
            if found not in self.names:
                self.names[found] = names.fresh(f"{self.operands[found.operand].name}_map")
        waits = (s.pending for s in walk(kernel.body) if isinstance(s, AsyncWait))
        most = max(waits, default=0)
        self.phases = most + 2 if most else 1  # that can be under way
        self.barrier, self.phase = names.fresh("arrived"), names.fresh("phase")
        self.begun, self.done = names.fresh("begun"), names.fresh("done")

    def map_of(self, copy: VectorStore) -> Map:
        box = op_of(copy.value, Box)
        number = self.operands.index(box.buffer)
        dtype = copy.buffer.type.dtype
        strides = tuple(n * dtype.bytes for n in box.strides)
        return Map(number, dtype.numpy.name, box.sizes, strides, box.sides, copy.buffer.swizzle)

    @property
    def parameters(self) -> list[str]:
        return [f"const __grid_constant__ TensorMap {name}" for name in self.names.values()]

    @property
    def head(self) -> list[str]:
        """What a kernel with such copies starts with."""
        array, state = self.barrier, f"{self.phase} = 0"
        start = f"mbarrier_init(&{self.barrier}, 1);"
        if self.phases > 1:
            array, state = f"{array}[{self.phases}]", f"{self.begun} = 0, {self.done} = 0"
            start = f"for (i32 i = 0; i < {self.phases}; i++) mbarrier_init({self.barrier} + i, 1);"
        return [
            f"__shared__ u64 {array};",
            f"u32 {state};",
            f"{self.first} {{ {start} mbarrier_init_fence(); }}",
            self.language.barrier,
        ]

    def at(self, phase: str) -> str:
        """The barrier of a phase."""
        if self.phases == 1:
            return f"&{self.barrier}"
        return f"{self.barrier} + {phase} % {self.phases}"

    def start(self, copy: VectorStore, at: str, coordinates: Sequence[str]) -> str:
        """A function of the prelude, for the first thread, by coordinates innermost first."""
        size = copy.lanes * copy.buffer.type.dtype.bytes
        barrier = self.at(self.begun)
        where = ", ".join([at, self.names[self.map_of(copy)], barrier, *reversed(coordinates)])
        load = f"{self.language.boxes}_{len(coordinates)}d({where});"
        return f"{self.first} {{ mbarrier_expect_more({barrier}, {size}); {load} }}"

    def wait(self, pending: int) -> list[str]:
        """The end of a phase, and a wait for all but so many."""
        arrive = f"{self.first} mbarrier_arrive({self.at(self.begun)});"
        if self.phases == 1:
            wait = f"mbarrier_wait({self.at(self.done)}, {self.phase});"
            return [arrive, wait, f"{self.phase} ^= 1;"]
        parity = f"{self.done} / {self.phases} % 2"
        return [
            arrive,
            f"for ({self.begun}++; {self.done} + {pending} < {self.begun}; {self.done}++)",
            f"    mbarrier_wait({self.at(self.done)}, {parity});",
        ]


def product(
    stmt: Mma, word: str, sums: str, pointer: Callable[[Buffer, Node], str]
) -> Iterator[str]:
    """A product of matrices in shared memory, whose sums are an array: by STEP of its depth."""
    (left,), (right,) = stmt.left, stmt.right
    a, b = op_of(left, Matrix), op_of(right, Matrix)
    sides = ", ".join(_side(m, pointer(replace(m.buffer, swizzle=0), at), word)
                      for m, at in ((a, left.args[0]), (b, right.args[0])))  # fmt: skip
    ways = ", ".join(str(m.by_rows).lower() for m in (a, b))
    kind = f"{b.buffer.type.dtype}<{b.rows}, {ways}>"
    yield f"{word}_fence();"
    yield "#pragma unroll"
    yield f"for (i32 k = 0; k < {b.depth // STEP}; k++) {word}_{kind}({sums}, {sides});"
    yield f"{word}_commit();"
    yield f"{word}_wait<0>();"


def _side(matrix: Matrix, at: str, word: str) -> str:
    """Where the units find a step's part of a side: they undo the swizzle themselves."""
    swizzle, size = matrix.buffer.swizzle, matrix.buffer.type.dtype.bytes
    place = f"{word}_descriptor<{swizzle}>({at}, {size * matrix.leading}, {8 * swizzle})"
    step = (swizzle if matrix.by_rows else size) * STEP // 16  # descriptors count by 16 bytes
    return f"{place} + {step} * k"
