"""The simulator over the kernels of a lowered program: in full, or some blocks of each.

player = Player()
player.texts.add((made, target) for made in lowered.kernels)     # new texts are built together
outputs = player.run(lowered, tensors)
player.partly, player.left     # kernels that ran in part, or not at all

A kernel that has run with the same text and the same arguments is not run again; nor is one of the
same text where a program runs in part, whose values are not compared unless it is one kernel.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tests.gpu.corpus.schedules import Lowered, Made
from weft.core.errors import CompilerError, WeftError
from weft.link.simulator import arguments, memory_of, tensor_of
from weft.scalar.nest import Kernel, Rows
from weft.sim import simulate
from weft.sim.build import build
from weft.targets.gpu import GPU

LONG = 20_000_000  # statements of all threads: a program of more runs in part
SECONDS = 300  # of one kernel in the simulator
TOGETHER = 12  # kernels of one text for g++
UNTOUCHED = 77


@dataclass(frozen=True)
class Part:
    """What runs of the kernels of a program that runs in part."""

    fewest: int  # blocks of a kernel, or it does not run
    most: int
    long: int  # statements of the blocks of all kernels, where more than the fewest run
    longest: int  # statements of the fewest blocks of one kernel

    def blocks(self, made: Made, kernels: int) -> int:
        """How many blocks of a kernel run: 0 is all of them, -1 none."""
        total, grid, share = made.statements, made.launch.grid, self.long // kernels
        if total <= share or (grid <= self.fewest and total <= self.longest):
            return 0
        if total * self.fewest > self.longest * grid:
            return -1
        return min(self.most, max(self.fewest, share * grid // total))


DEFAULT = Part(fewest=1, most=12, long=LONG, longest=5 * LONG // 2)
LEFT_OUT = Part(fewest=1, most=4, long=LONG // 4, longest=LONG // 2)  # a pass is


def unwritten(buffer: Any, marked: bool) -> np.ndarray:
    """Memory of a buffer; `marked` where it tells what has been written."""
    array = np.zeros(max(1, buffer.type.span), buffer.type.dtype.word.numpy)
    if marked:
        array.fill(np.nan if buffer.type.dtype.is_float else UNTOUCHED)
    return array


@dataclass
class Texts:
    """Kernels in the simulator's own programs, several in each."""

    where: dict[str, tuple[str, str]] = field(default_factory=dict)  # code -> text, symbol

    def add(self, kernels: Iterable[tuple[Made, GPU]]) -> None:
        new: dict[str, dict[str, str]] = {}
        for made, target in kernels:
            if made.code not in self.where:
                new.setdefault(target.arch, {})[made.code] = made.symbol
        for arch, symbols in new.items():
            codes = list(symbols)
            for at in range(0, len(codes), TOGETHER):
                self.build({code: symbols[code] for code in codes[at : at + TOGETHER]}, arch)

    def build(self, symbols: dict[str, str], arch: str) -> None:
        text, names = joined(symbols.items())
        try:
            build(text, arch)
            self.where |= {code: (text, name) for code, name in zip(symbols, names, strict=True)}
        except CompilerError:  # the one that is refused says so when it runs
            self.where |= {code: (code, symbol) for code, symbol in symbols.items()}


def joined(kernels: Iterable[tuple[str, str]]) -> tuple[str, list[str]]:
    """Texts of kernels with their symbols as one, and what each is called there."""
    includes: dict[str, None] = {}
    bodies, names = list[str](), list[str]()
    for number, (code, symbol) in enumerate(kernels):
        includes |= dict.fromkeys(re.findall(r"^#include .*$", code, re.MULTILINE))
        names.append(f"{symbol}_{number}")
        body = re.sub(r"^#include .*\n", "", code, flags=re.MULTILINE)
        bodies.append(re.sub(rf"\b{symbol}\b", names[-1], body))
    return "\n".join([*includes, *bodies]), names


@dataclass
class Player:
    texts: Texts = field(default_factory=Texts)
    played: dict[Any, list[np.ndarray]] = field(default_factory=dict)
    partly: int = 0
    left: int = 0
    marked: bool = False  # what has been written can be told

    def run(self, one: Lowered, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results of one schedule; WeftError for a fault."""
        program, kernels = one.program, one.kernels
        whole = sum(made.statements for made in kernels) <= LONG
        part = LEFT_OUT if one.passes else DEFAULT
        samples = [0 if whole else part.blocks(made, len(kernels)) for made in kernels]
        whole = not any(samples)
        self.partly = self.left = 0
        given = zip(program.inputs, tensors, strict=True)
        memory = {b.name: memory_of(t, b) for b, t in given}
        for step in program.steps:
            if not isinstance(step, Kernel | Rows):
                raise WeftError(f"{step.target} is a library call: the simulator has none")
            made = one.made[step.name]
            sample = samples.pop(0)
            self.partly += sample > 0
            self.left += sample < 0
            self.marked = sample > 0 and len(kernels) == 1
            inputs = [memory[b.name] for b in step.inputs]
            known = [memory[b.name] for b in step.outputs if b.name in memory]  # to combine with
            new = (unwritten(b, self.marked) for b in step.outputs)
            outputs = [array.copy() for array in known] or [*new]
            if sample >= 0:
                facts = [*map(digest, [*inputs, *known])] if whole else [sample]
                arrays = [*inputs, *outputs]
                if isinstance(step, Rows):
                    names = (b.name for b in (*step.inputs, *step.outputs))
                    held = dict(zip(names, arrays, strict=True))
                    arrays = [held[b.name] for b in step.operands]
                outputs = self.play(made, one, sample, inputs, outputs, arrays, facts)
            memory |= {b.name: array for b, array in zip(step.outputs, outputs, strict=True)}
        return [tensor_of(memory[b.name], b) for b in program.outputs]

    def play(
        self,
        made: Made,
        one: Lowered,
        sample: int,
        inputs: Any,
        outputs: Any,
        arrays: Any,
        facts: Any,
    ) -> Any:
        """The outputs; those of before where the kernel has run, and `facts` were the same."""
        launch = made.launch
        key = (made.code, launch.grid, launch.block, *facts)
        if key not in self.played:
            for array in inputs:
                array.setflags(write=False)  # so that it is not copied back
            args = arguments(arrays, launch)

            def run(text: str, symbol: str) -> Any:
                where = (text, symbol, launch.grid, launch.block, args)
                facts = {"arch": one.target.arch, "warp": one.target.warp}
                facts["shared_bytes"] = launch.dynamic_bytes
                return simulate(*where, **facts, sample=sample, seconds=SECONDS)

            if run(*self.texts.where.get(made.code, (made.code, made.symbol))).faults:
                report = run(launch.source, made.symbol)
                told = f"kernel {made.symbol} has faults in the simulator:\n{report}"
                raise WeftError(told)
            self.played[key] = outputs
        return self.played[key]


def digest(array: np.ndarray) -> bytes:
    return hashlib.blake2b(array.view(np.uint8), digest_size=16).digest()
