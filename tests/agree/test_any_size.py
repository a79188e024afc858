"""The corpus for any size: traced at its sizes, run at others, by each level's interpreter and C.

A program whose arguments have other lengths too is one that eager runs at those. All of the
corpus: python -m tests.agree.test_any_size [NAME ...]; pytest takes every TAKEN-th program.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.agree.checks import fresh
from tests.agree.inputs import Case, Input
from tests.agree.test_programs import PROGRAMS
from weft import driver
from weft.core.errors import WeftError
from weft.frontend import torch_level
from weft.frontend.calling import compiled
from weft.interpret import kernels, nests, tensors
from weft.options import Options
from weft.scalar.ops import constant
from weft.scalar.resize import sizes_of, with_sizes
from weft.text import parse_program, print_program

TAKEN = 9
GROWTHS = (1, 3, 8)  # how much longer every axis is than in the corpus
TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 6e-2, torch.float32: 2e-4, torch.float64: 1e-8}
LEVELS = {
    "torch": lambda program, inputs: torch_level.evaluate(program, inputs),
    "tensor": lambda program, inputs: tensors.evaluate(program, arrays(inputs)),
    "loop": lambda program, inputs: nests.run(program, arrays(inputs)),
    "tile": lambda program, inputs: nests.run(program, arrays(inputs)),
    "kernel": lambda program, inputs: kernels.run(program, arrays(inputs)),
}


class Recorder(driver.Builder):
    """Keeps what each program of any size was given and gave."""

    def __call__(self, captured: Any) -> Any:
        runner = super().__call__(captured)
        sizes, count = sizes_of(captured.graph).values(), len(captured.placeholders)
        if not sizes:
            return runner

        def run(inputs: Any) -> Any:
            before = [t.detach().clone() for t in inputs[:count]]
            results = runner(inputs)
            numbers = {n: constant(k) for n, k in zip(sizes, inputs[count:], strict=True)}
            kept = (runner, captured, numbers, before, list(results))
            self.__dict__.setdefault("runs", []).append(kept)
            return results

        run.artifact = runner.artifact  # type: ignore[attr-defined]
        return run


def arrays(inputs: list[torch.Tensor]) -> list[np.ndarray]:
    return [tensors.to_numpy(t) for t in inputs]


def grown(case: Case, more: int) -> Case:
    def longer(a: Any) -> Any:
        return replace(a, shape=tuple(n + more if n > 1 else n for n in a.shape))

    return replace(case, args=tuple(longer(a) if isinstance(a, Input) else a for a in case.args))


def calls(case: Case) -> Iterator[tuple[list[Any], Any]]:
    """Arguments of other lengths, where eager takes them, and what it gives."""
    for more in (0, *GROWTHS):
        try:
            args = grown(case, more).make()
            yield args, case.fn(*fresh(args))
        except (RuntimeError, IndexError, ValueError, AssertionError):
            continue


def close(found: Any, wanted: torch.Tensor, told: str) -> None:
    value = found if isinstance(found, torch.Tensor) else tensors.to_torch(np.asarray(found))
    limit = TOLERANCE.get(wanted.dtype, 0)
    torch.testing.assert_close(
        value.to(wanted.dtype), wanted, rtol=limit, atol=limit, equal_nan=True,
        check_stride=False, msg=lambda text: f"{told}: {text}",
    )  # fmt: skip


def check(case: Case) -> int:
    """Runs the program at all lengths; how many runs were of a program for any size."""
    recorder = Recorder(Options(dynamic=True))
    f = compiled(case.fn, recorder)
    for args, wanted in calls(case):
        pairs = zip(tree_leaves(f(*fresh(args))), tree_leaves(wanted), strict=True)
        for a, b in pairs:
            if isinstance(b, torch.Tensor):
                assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
                close(a, b, "C")
    runs = recorder.__dict__.get("runs", [])
    for runner, captured, numbers, inputs, results in runs:
        for level, run in LEVELS.items():
            program = runner.artifact.levels().program(level)
            text = print_program(program)
            assert print_program(parse_program(text)) == text, level
            found = run(with_sizes(program, numbers), inputs)
            for a, b in zip(found, results, strict=not captured.mutations):
                if b.dtype.is_floating_point or not b.dtype.is_complex:
                    close(a, b, level)
    return len(runs)


@pytest.mark.parametrize("case", PROGRAMS[::TAKEN], ids=lambda c: c.name)
def test_every_executor_agrees_at_any_size(case: Case) -> None:
    check(case)


def main(names: list[str]) -> None:
    general = failed = 0
    for case in PROGRAMS:
        if names and case.name not in names:
            continue
        try:
            general += check(case) > 0
        except (AssertionError, WeftError) as error:
            failed += 1
            print(f"{case.name}: {str(error).strip().splitlines()[0]}", flush=True)
    print(f"{general} programs for any size, {failed} failed")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
