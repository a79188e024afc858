"""Writes a kernel with rows for GPUs: one launch, in which each block finds the row it is of.

launch = emit_rows(step, "k_add", CUDA)     # void k_add(const f32 *x_r0, ..., const f32 *x_r1, ...)

The launch has the operands of all rows, and the blocks of one row behind those of another. A block
looks among their first ones for its own, by halves, and takes that row's operands and sizes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from weft.core.errors import WeftError
from weft.emit.gpu import GPUEmitter, Launch
from weft.emit.languages import CUDA, Language
from weft.emit.spelling import element
from weft.scalar.nest import Buffer, Rows
from weft.scalar.ops import constant
from weft.scalar.resize import sizes_of, with_sizes


class RowsEmitter(GPUEmitter):
    """Writes the kernel of rows, whose parameters are variables in it."""

    def __init__(self, step: Rows, symbol: str, language: Language) -> None:
        super().__init__(step.kernel, symbol, language)
        if self.boxes.names:
            raise self.refusal("has rows, and boxes that a copy engine fills")
        own: set[str] = {n.op.label for n in step.sizes}  # type: ignore[attr-defined]
        if others := {*sizes_of(step.kernel)} - own:
            told = f"kernel {step.name} has rows, of which none says {', '.join(sorted(others))}"
            raise WeftError(f"{told}: a launch of rows takes no sizes of the program")
        self.step = step
        grid, sizes = math.prod(self.grid), [map(constant, row.sizes) for row in step.rows]
        numbers = [dict(zip(step.sizes, own, strict=True)) for own in sizes]
        counts = [with_sizes(grid, own) for own in numbers]
        *self.firsts, self.blocks = accumulate(counts, initial=0)  # of each row; of all
        self.own_block, self.block_name = language.block, self.spelt.fresh("block")
        self.language = replace(language, block=self.block_name)
        self.operands: dict[Buffer, list[str]] = {}

    def parameters(self) -> list[str]:
        """The operands of one row behind those of another."""
        super().parameters()  # which declares them
        for buffer in (*self.kernel.inputs, *self.kernel.outputs):
            name = self.spelt.of(buffer.name)
            self.operands[buffer] = [self.spelt.fresh(f"{name}_r{r}") for r in range(self.rows)]
        found: list[str] = []
        for r in range(self.rows):
            for buffer, names in self.operands.items():
                found.append(self.address(self.parameter, buffer, names[r], len(found)))
        return found

    @property
    def rows(self) -> int:
        return len(self.step.rows)

    def address(self, spelling: str, buffer: Buffer, name: str, number: int = 0) -> str:
        const = "const " if buffer not in self.kernel.outputs else ""
        type_ = element(buffer.type.dtype)
        return spelling.format(const=const, type=type_, name=name, number=number)

    def take_sizes(self, parameters: list[str], order: Sequence[str] = ()) -> Iterator[str]:
        """What stands for a row's operands and sizes, and how a block finds them."""
        for buffer in self.operands:
            held = self.language.pointer or self.language.buffer
            yield f"    {self.address(held, buffer, self.spelt.of(buffer.name))};"
        for label in sizes_of(self.kernel):
            yield f"    {self.integer} {self.declare(self.variable(label), self.integer)};"
        yield f"    {self.integer} {self.block_name} = {self.own_block};"
        yield from self.choice(0, self.rows, 1)

    def choice(self, begin: int, end: int, depth: int) -> Iterator[str]:
        """The row of a block, which is one from `begin` on, and before `end`."""
        space = "    " * depth
        if end - begin > 1:
            middle = (begin + end) // 2
            yield f"{space}if ({self.block_name} < {self.firsts[middle]}) {{"
            yield from self.choice(begin, middle, depth + 1)
            yield f"{space}}} else {{"
            yield from self.choice(middle, end, depth + 1)
            yield f"{space}}}"
            return
        for buffer, names in self.operands.items():
            yield f"{space}{self.spelt.of(buffer.name)} = {names[begin]};"
        used = {*sizes_of(self.kernel)}
        for size, number in zip(self.step.sizes, self.step.rows[begin].sizes, strict=True):
            if size.op.label in used:  # type: ignore[attr-defined]
                yield f"{space}{self.variable(size.op.label)} = {number};"  # type: ignore[attr-defined]
        if begin:
            yield f"{space}{self.block_name} -= {self.firsts[begin]};"

    def launch(self, meaning: Sequence[str]) -> Launch:
        return replace(super().launch(meaning), grid=self.blocks, sizes=())


def emit_rows(
    step: Rows, symbol: str, language: Language = CUDA, meaning: Sequence[str] = ()
) -> Launch:
    """One file that defines `symbol` over each row's inputs and outputs, as `emit_gpu` has it."""
    return RowsEmitter(step, symbol, language).launch(meaning)
