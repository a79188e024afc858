"""Runs the corpus of tests/agree through MLIR and LLVM: python -m tests.conformance.mlir [NAME ...]

Each program's loop level is printed as MLIR, verified, lowered by mlir-opt, and run by llvmlite. A
float may be twice as far from float64 as eager is, or the floor, or what a sum of n terms rounds to
that is added up in order: 4 sqrt(n) u, u half an epsilon (Higham, Mary 2019: A new approach to
probabilistic rounding error analysis). All else is exact. Ends with 1 if any program differs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import torch

from tests.agree.checks import FLOOR, Disagreement, Recorder, count, distance, fresh, same_specials
from tests.agree.inputs import Case
from tests.agree.test_programs import PROGRAMS
from tests.export import mlir_executor
from weft import driver
from weft.calling import compiled
from weft.interpret import calls
from weft.scalar.nest import Block, For


def check(case: Case) -> None:
    """Disagreement, or what a tool raises, where MLIR's result is not eager's."""
    recorder = Recorder(driver.Options())
    f = compiled(case.fn, recorder)
    with torch.no_grad():
        f(*fresh(case.make()))
    levels = f.programs[0].artifact.levels()  # type: ignore[attr-defined]
    given, graph = recorder.given[0], levels.program("torch")
    arrays = [driver.to_numpy(t) for t in given]
    out = mlir_executor.run(levels.program("loop"), arrays)
    eager, exact = (
        calls.evaluate(graph, [t.clone() for t in given], double=d) for d in (False, True)
    )
    length = max((longest(k.body) for k in levels.program("loop").kernels), default=1)
    for i, (mine, e, d) in enumerate(zip(out, eager, exact, strict=True)):
        compare(f"{case.name}, result {i}", mine, e, d, length)


def longest(body: Block) -> int:
    """Terms of the longest fold of a nest."""
    loops = [s for s in body if isinstance(s, For)]
    return max(
        (longest(s.body) * (1 if s.role == "free" else s.extent or 1) for s in loops), default=1
    )


def compare(
    where: str, mine: np.ndarray, eager: torch.Tensor, exact: torch.Tensor, length: int = 1
) -> None:
    theirs = driver.to_numpy(eager)
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        raise Disagreement(f"{where}: {mine.dtype}{mine.shape}, not {theirs.dtype}{theirs.shape}")
    if not eager.is_floating_point():
        if not np.array_equal(mine, theirs):
            raise Disagreement(f"{where}: {count(mine, theirs)}")
        return
    g, e, d = (a.astype(np.float64) for a in (mine, theirs, exact.numpy()))
    same_specials(where, g, e)
    in_order = 4 * length**0.5 * torch.finfo(eager.dtype).eps / 2 if length > 1 else 0
    allowed = max(FLOOR[eager.dtype], 2 * distance(e, d), in_order)
    if distance(g, d) > allowed:
        raise Disagreement(f"{where}: relative error {distance(g, d):.2e}, allowed {allowed:.2e}")


def main(names: Sequence[str]) -> int:
    why = mlir_executor.missing()
    if why:
        print(why)
        return 1
    cases = [c for c in PROGRAMS if not names or any(name in c.name for name in names)]
    wrong = 0
    for case in cases:
        print(f"\r{case.name:40}", end="", file=sys.stderr, flush=True)  # which it was that crashes
        try:
            check(case)
        except Exception as error:
            wrong += 1
            print(f"{case.name}: {type(error).__name__}: {error}"[:600])
    print(f"{len(cases) - wrong} of {len(cases)} programs equal")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
