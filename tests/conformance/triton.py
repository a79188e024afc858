"""Runs the corpus of tests/agree through Triton: python -m tests.conformance.triton [NAME ...]

Each program's blocks for sm_90a are printed as one Python file, which Triton's interpreter runs on
the program's inputs, and whose kernels Triton compiles to cubins for sm_90. A float may be as far
from float64 as tests/conformance/mlir.py allows; all else is exact. Ends with 1 if any program
differs. What interprets and compiles, and how products of bf16 are checked:
tests/export/triton_worker.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from tests.agree.checks import fresh
from tests.agree.inputs import Case
from tests.agree.test_programs import PROGRAMS
from tests.conformance.mlir import compare, longest
from tests.export.triton_worker import Worker, missing
from weft import driver
from weft.calling import compiled
from weft.core.passes import PassLog
from weft.frontend.graph import Captured, Known
from weft.interpret import calls

TARGET = "cuda:sm_90a"


class Stop(BaseException):
    """Ends a call where its graph is known: no GPU runs the rest."""


def traced(case: Case) -> tuple[Captured, list[torch.Tensor]]:
    """The graph of a program, and the tensors that it is called with."""
    found: list[tuple[Captured, list[torch.Tensor]]] = []

    class Tracer(driver.Builder):
        def __call__(self, captured: Captured) -> Any:
            def run(tensors: list[torch.Tensor]) -> Any:
                found.append((captured, fresh([t.detach() for t in tensors])))
                raise Stop

            run.artifact = None  # type: ignore[attr-defined]
            return run

    with torch.no_grad(), suppress(Stop):
        compiled(case.fn, Tracer(driver.Options()))(*fresh(case.make()))
    (only,) = found
    return only


def check(case: Case, interpreter: Worker, compiler: Worker | None = None) -> int:
    """Disagreement, or what Triton raises, where the result is not eager's; cubins made."""
    captured, given = traced(case)
    levels = driver.lower(
        captured.graph, driver.Options(TARGET), PassLog(), Known(captured.layouts)
    )
    text = levels.text("triton")
    out = interpreter(text, given)
    eager, exact = (
        calls.evaluate(captured.graph, [t.clone() for t in given], double=d) for d in (False, True)
    )
    length = max((longest(k.body) for k in levels.program("loop").kernels), default=1)
    for i, (mine, e, d) in enumerate(zip(out, eager, exact, strict=True)):
        compare(f"{case.name}, result {i}", driver.to_numpy(mine), e, d, length)
    return len(compiler(text, given)) if compiler is not None else 0


def main(names: Sequence[str]) -> int:
    why = missing()
    if why:
        print(why)
        return 1
    cases = [c for c in PROGRAMS if not names or any(name in c.name for name in names)]
    wrong = cubins = 0
    with Worker("interpret") as interpreter, Worker("compile") as compiler:
        for case in cases:
            print(f"\r{case.name:40}", end="", file=sys.stderr, flush=True)
            try:
                cubins += check(case, interpreter, compiler)
            except Exception as error:
                wrong += 1
                print(f"{case.name}: {type(error).__name__}: {error}"[:600], flush=True)
    print(f"{cubins} cubins")
    print(f"{len(cases) - wrong} of {len(cases)} programs equal")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
