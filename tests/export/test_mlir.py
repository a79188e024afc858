"""The loop level as MLIR: a fixed part of the corpus run by LLVM, and what the text has to say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import weft
from tests.agree.checks import Disagreement
from tests.agree.inputs import Case, f32, i64
from tests.agree.test_programs import PROGRAMS
from tests.conformance.mlir import check, compare
from tests.export import mlir_executor
from weft import driver
from weft.core.errors import UnsupportedOpError
from weft.core.passes import PassLog
from weft.export.mlir import to_mlir

WHY = mlir_executor.missing()
runs = pytest.mark.skipif(WHY is not None, reason=WHY or "")
# Every kind of statement, fold and term; `python -m tests.conformance.mlir` runs all of the corpus.
CHOSEN = """arithmetic_bfloat16 divided_uint8 divided_negative shifted_int16 to_all_float16
smooth_float64 of_bool specials rounded_f16 large_softmax_of_one_row""".split()


@runs
@pytest.mark.parametrize("case", [c for c in PROGRAMS if c.name in CHOSEN], ids=lambda c: c.name)
def test_llvm_gives_what_eager_gives(case: Case) -> None:
    check(case)


LEAST = -(2.0**63)
EDGES = {
    "least_by_minus_one": (lambda x: x.div(-1, rounding_mode="floor"), i64(2, of=(LEAST, 7))),
    "least_of_float": (lambda x: x.long(), f32(3, of=(LEAST, -1.9, 2.0**62))),
}


@runs
@pytest.mark.parametrize("name", EDGES)
def test_least_integers(name: str) -> None:
    fn, x = EDGES[name]
    check(Case(name, fn, (x,)))


@runs
def test_recurrences_scatters_and_library_calls_run() -> None:
    torch.manual_seed(0)
    rnn = torch.nn.RNN(8, 8).requires_grad_(False)

    def step(x, i):
        hidden, _ = rnn(x)
        return hidden.sum(0).scatter_add(1, i, x[0]), torch.linalg.inv(x[0, :, :2])

    text = weft.compile(step).prepare(torch.randn(5, 2, 8), torch.tensor([[0], [3]])).ir("mlir")
    assert "memref.subview" in text and 'target = "aten.linalg_inv_ex.default"' in text
    check(Case("recurrence", step, (f32(5, 2, 8), i64(2, 1, below=8)), externs=True))


ANY_SIZE = weft.compile(lambda x: torch.softmax(x, -1).t().contiguous(), dynamic=True)


@runs
def test_one_text_runs_at_any_size() -> None:
    ANY_SIZE.prepare(torch.randn(5, 7))
    program = ANY_SIZE.programs[0].artifact.levels().program("loop")
    assert "memref<?x?xf32>" in to_mlir(program)
    for shape in ((5, 7), (2, 90)):
        x = torch.randn(shape)
        (got,) = mlir_executor.run(program, [x.numpy()])
        np.testing.assert_allclose(got, torch.softmax(x, -1).t().numpy(), rtol=1e-6)


@runs
def test_pairs_of_bf16_are_words() -> None:
    a, b = torch.randn(5, 9).bfloat16(), torch.randn(9, 6).bfloat16()
    f = weft.compile(lambda a, b: a @ b).prepare(a, b)
    graph = f.programs[0].artifact.levels().program("torch")
    levels = driver.lower(graph, driver.Options("cpu:avx512_bf16"), PassLog())
    assert "dot_bf16" in levels.text("loop") and "arith.shli" in levels.text("mlir")
    (got,) = mlir_executor.run(levels.program("loop"), [driver.to_numpy(x) for x in (a, b)])
    np.testing.assert_allclose(
        got.astype(np.float64), a.double() @ b.double(), rtol=1e-2, atol=1e-2
    )


def test_a_function_without_a_row_is_an_error_that_names_it() -> None:
    f = weft.compile(lambda x: torch.special.bessel_j0(x)).prepare(torch.randn(4))
    with pytest.raises(UnsupportedOpError, match="MLIR's dialects have no bessel_j0 of f32"):
        f.ir("mlir")


VERIFIERS = [*mlir_executor.verifiers()]


@pytest.mark.skipif(not VERIFIERS, reason="neither mlir-opt nor jaxlib is installed")
def test_both_verifiers_accept_the_text_and_refuse_a_broken_one() -> None:
    ANY_SIZE.prepare(torch.randn(5, 7))
    text = ANY_SIZE.ir("mlir")
    for verify in VERIFIERS:
        verify(text)
        with pytest.raises(ValueError, match="f64"):
            verify(text.replace("math.exp %v1 : f32", "math.exp %v1 : f64"))


def test_the_judge_refuses_other_numbers() -> None:
    eager = torch.ones(3)
    compare("right", eager.numpy(), eager, eager.double())
    with pytest.raises(Disagreement, match="relative error"):
        compare("off", (eager * 1.00001).numpy(), eager, eager.double())
    with pytest.raises(Disagreement, match="differ"):
        compare("off", np.array([1, 2]), torch.tensor([1, 3]), torch.tensor([1, 3]))
