"""The corpus for any size: traced at its sizes, run at others, by each level's interpreter, in C,
in the simulator and on an OpenCL device.

A program whose arguments are longer is one that eager takes at those lengths. All of the corpus:
python -m tests.agree.test_any_size c|simulator|metal|opencl [NAME ...], at GROWTHS; pytest takes
every TAKEN-th program, at one of these.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from tests.agree.checks import LEVELS, Disagreement, check_levels, compare_trees, fresh
from tests.agree.inputs import Case, Input
from tests.agree.test_programs import PROGRAMS
from tests.gpu.opencl import opencl_device
from weft import driver
from weft.calling import compiled
from weft.core.node import Node
from weft.options import Options
from weft.scalar.ops import constant
from weft.scalar.resize import sizes_of, with_sizes
from weft.text import parse_program, print_program

TAKEN = 9
EXECUTORS = {
    "c": Options(dynamic=True),
    "simulator": Options(dynamic=True, target="cuda:sm_90a", simulate=True, fallback="error"),
    "metal": Options(dynamic=True, target="metal", simulate=True, fallback="error"),
    "opencl": Options(dynamic=True, target="opencl"),
}
GROWTHS = (1, 3, 8)  # how much longer every axis is than in the corpus
REFUSALS = (RuntimeError, IndexError, ValueError, AssertionError)  # eager's, at other lengths
# Of those taken, the ones that are compiled for each size by itself.
EACH_SIZE = {
    "folded_at_sums",
    "index_and_float",
    "matmul_1",  # of one element: nothing grows
    "one_sums",
    "parted",
    "reshaped",
}


@dataclass(frozen=True)
class At:
    """The levels of a program at some sizes."""

    levels: Any
    numbers: Mapping[str, Node]  # by label: hints differ between levels

    def program(self, level: str) -> Any:
        program = self.levels.program(level)
        return with_sizes(program, {n: self.numbers[s] for s, n in sizes_of(program).items()})


@dataclass(frozen=True)
class Recorder(driver.Builder):
    """Keeps the levels and the tensors of every run of a program for any size."""

    runs: list[tuple[At, list[torch.Tensor]]] = field(default_factory=list, compare=False)

    def __call__(self, captured: Any) -> Any:
        runner = super().__call__(captured)
        artifact: Any = runner.artifact  # type: ignore[attr-defined]
        sizes, count = sizes_of(captured.graph), len(captured.placeholders)

        def run(inputs: Any) -> Any:
            numbers = dict(zip(sizes, map(constant, inputs[count:]), strict=True))
            given = [t.detach().clone() for t in inputs[:count]]
            self.runs.append((At(artifact.levels(), numbers), given))
            return runner(inputs)

        run.artifact = artifact  # type: ignore[attr-defined]
        return run if sizes else runner


def grown(case: Case, more: int) -> Case:
    def longer(a: Any) -> Any:
        return replace(a, shape=tuple(n + more if n > 1 else n for n in a.shape))

    return replace(case, args=tuple(longer(a) if isinstance(a, Input) else a for a in case.args))


def check(case: Case, executor: str = "c", growths: Sequence[int] = GROWTHS[1:2]) -> bool:
    """Runs the program at all lengths; whether any run was of a program for any size."""
    recorder = Recorder(EXECUTORS[executor])
    f = compiled(case.fn, recorder)
    for more in (0, *growths):
        try:
            args = grown(case, more).make()
            ours, theirs = fresh(args), fresh(args)
            expected = case.fn(*theirs)
        except REFUSALS:
            if more == 0:
                raise
            continue
        with torch.no_grad():
            out = f(*ours)
        compare_trees(case.fn, args, out, expected, ours, theirs)
    for at, given in recorder.runs:
        for level in LEVELS:
            program = at.levels.program(level)
            driver.VERIFY[level](program)
            text = print_program(program)
            if print_program(parse_program(text)) != text:
                raise Disagreement(f"{level}: the text does not come back the same")
        # no interpreter runs kernels whose threads wait for each other
        check_levels(at, given, LEVELS if executor == "c" else LEVELS[:-1])
    return bool(recorder.runs)


@pytest.mark.parametrize("case", PROGRAMS[::TAKEN], ids=lambda c: c.name)
def test_every_executor_agrees_at_any_size(case: Case) -> None:
    assert check(case) == (case.name not in EACH_SIZE)


@pytest.mark.parametrize("case", PROGRAMS[35 :: 8 * TAKEN], ids=lambda c: c.name)
@pytest.mark.parametrize("executor", ["simulator", "opencl"])
def test_gpus_agree_at_any_size(executor: str, case: Case) -> None:
    if executor == "simulator" and shutil.which("g++") is None:
        pytest.skip("the simulator needs g++")
    if executor == "opencl":
        opencl_device()
    assert check(case, executor) == (case.name not in EACH_SIZE)


def main(executor: str, *names: str) -> None:
    general = failed = 0
    for case in PROGRAMS:
        if names and case.name not in names:
            continue
        try:
            found = check(case, executor, GROWTHS)
            general += found
            print(case.name, "any size" if found else "each size", flush=True)
        except Exception as error:
            failed += 1
            told = (str(error).strip().splitlines() or [""])[0]
            print(f"{case.name}: {type(error).__name__}: {told}", flush=True)
    print(f"{general} programs for any size, {failed} failed")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
