"""Runs, folds of consecutive elements: the op, its nest, the scatter that does the same, faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import weft
from tests.agree.checks import check_levels
from weft.core.errors import IndexOutOfRange, VerifyError
from weft.interpret import nests as interpret
from weft.interpret.tensors import evaluate
from weft.tensor.lower import lower
from weft.tensor.runs import as_scatters
from weft.tensor.verify import verify
from weft.text import parse_program, print_program

TEXT = """
program tensor runs
input base: f32[5,3]
input starts: i64[6]
input x: f32[9,3]
y = runs{sum, axis=0}(base, starts, x): f32[5,3]
output y
"""
NUMBERS = """
program tensor numbers
input starts: i64[6]
y = run_of{extent=9}(starts): i32[9]
output y
"""
STARTS = [0, 4, 4, 5, 9, 9], [2, 3, 3, 3, 3, 8]


def given(starts: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    first, x = rng.random((5, 3)), rng.random((9, 3))
    return [first.astype(np.float32), np.array(starts), x.astype(np.float32)]


@pytest.mark.parametrize("starts", STARTS)
@pytest.mark.parametrize("monoid", ["sum", "product", "max", "min"])
def test_a_nest_and_a_scatter_do_the_same(monoid: str, starts: Any) -> None:
    graph = parse_program(TEXT.replace("sum", monoid))
    verify(graph)
    assert print_program(parse_program(print_program(graph))) == print_program(graph)
    inputs = given(starts)
    (wanted,) = evaluate(graph, inputs, widen=True)
    base, _, x = inputs
    fold = {"sum": np.sum, "product": np.prod, "max": np.max, "min": np.min}[monoid]
    for i in range(5):
        rows = np.concatenate([base[i : i + 1], x[starts[i] : starts[i + 1]]]).astype(np.float64)
        np.testing.assert_allclose(wanted[i], fold(rows, axis=0), rtol=1e-14)
    (found,) = interpret.run(lower(graph, [tuple(graph.outputs)]), inputs, widen=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    (found,) = evaluate(as_scatters(graph), inputs, widen=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("starts", [[0, 4, 3, 5, 9, 9], [0, 4, 4, 5, 9, 10], [-1, 4, 4, 5, 9, 9]])
def test_starts_that_fall_or_lie_outside_are_faults(starts: Any) -> None:
    graph = parse_program(TEXT)
    for run in (
        lambda: evaluate(graph, given(starts)),
        lambda: interpret.run(lower(graph, [tuple(graph.outputs)]), given(starts)),
        lambda: evaluate(as_scatters(graph), given(starts)),
    ):
        with pytest.raises(IndexOutOfRange):
            run()


@pytest.mark.parametrize(
    "wrong", ["starts: i64[5]", "starts: i32[6]", "x: f64[9,3]", "x: f32[9,2]"]
)
def test_operands_that_do_not_fit(wrong: str) -> None:
    name = wrong.partition(":")[0]
    lines = [f"input {wrong}" if s.startswith(f"input {name}:") else s for s in TEXT.splitlines()]
    with pytest.raises(VerifyError, match="runs of"):
        verify(parse_program("\n".join(lines)))


def segments(how: str, n: int, *more: int) -> Any:
    lengths = torch.tensor([0, 3, 0, n - 40, 1, 36, 0])
    x = torch.randn(n, *more) + 1
    return lambda x, i: torch.segment_reduce(x, how, lengths=i, unsafe=True), (x, lengths)


@pytest.mark.parametrize("shape", [(41,), (200,), (300, 5), (90, 32), (70, 3, 4)])
@pytest.mark.parametrize("how", ["sum", "mean", "max", "min", "prod"])
def test_segments(how: str, shape: tuple[int, ...]) -> None:
    f, (x, lengths) = segments(how, *shape)
    g = weft.compile(f, fallback="error")
    torch.testing.assert_close(
        g(x, lengths).double(), f(x.double(), lengths), rtol=1e-5, atol=1e-6, equal_nan=True
    )
    ends = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    h = weft.compile(lambda x, i: torch.segment_reduce(x, how, offsets=i, unsafe=True))
    torch.testing.assert_close(h(x, ends), g(x, lengths), equal_nan=True)
    assert not h.reasons


def test_segments_of_what_is_not_a_number() -> None:
    x = torch.tensor([1.0, torch.nan, 2, torch.inf, -torch.inf, 3])
    lengths = torch.tensor([2, 1, 2, 1])
    for how in ("sum", "max", "min", "mean"):
        f = lambda x, i, how=how: torch.segment_reduce(x, how, lengths=i)  # noqa: E731
        torch.testing.assert_close(weft.compile(f)(x, lengths), f(x, lengths), equal_nan=True)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags(mode: str, last: bool, padding: int | None) -> None:
    table, indices = torch.randn(9, 20), torch.randint(9, (50,))
    offsets = torch.tensor([0, 0, 7, 8, 8, 31] + [50] * last)
    f = lambda t, i, o: torch.nn.functional.embedding_bag(  # noqa: E731
        i, t, o, mode=mode, include_last_offset=last, padding_idx=padding
    )
    g = weft.compile(f, fallback="error")
    wanted = f(table.double(), indices, offsets)
    torch.testing.assert_close(g(table, indices, offsets).double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrong", [[1, 5], [0, 9, 7], [0, 51]])
def test_offsets_of_no_bags_are_errors(wrong: list[int]) -> None:
    f = weft.compile(lambda t, i, o: torch.nn.functional.embedding_bag(i, t, o, mode="sum"))
    with pytest.raises((IndexError, RuntimeError)):
        f(torch.randn(9, 20), torch.randint(9, (50,)), torch.tensor(wrong))


@pytest.mark.parametrize("how", ["sum", "max", "prod"])
def test_on_every_level(how: str) -> None:
    f, args = segments(how, 60, 3)
    g = weft.compile(f, fallback="error", target="cpu:avx2")
    g(*args)
    check_levels(g.programs[0].artifact.levels(), list(args))


@pytest.mark.parametrize("how", ["sum", "max", "min", "prod"])
def test_gradients(how: str) -> None:
    f, (x, lengths) = segments(how, 50)
    weight = torch.randn(len(lengths))
    found = weft.compile(
        lambda x: weft.grad(lambda x: (f(x, lengths) * weight).nan_to_num(0, 0, 0).sum())(x)
    )(x)
    y = x.double().requires_grad_()
    (wanted,) = torch.autograd.grad((f(y, lengths) * weight).nan_to_num(0, 0, 0).sum(), y)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)


def test_on_a_gpu_they_are_scatters() -> None:
    f, (x, lengths) = segments("sum", 60, 3)
    g = weft.compile(f, fallback="error", target="cuda:sm_90a", simulate=True)
    torch.testing.assert_close(g(x, lengths), f(x, lengths))
    assert "runs" not in g.ir("tensor")


@pytest.mark.parametrize("starts", [*STARTS, [0] * 6, [9] * 6, [1, 1, 1, 1, 1, 2]])
def test_the_run_of_each_element(starts: Any) -> None:
    graph = parse_program(NUMBERS)
    verify(graph)
    assert print_program(parse_program(print_program(graph))) == print_program(graph)
    inside = [[i for i in range(5) if starts[i] <= k < starts[i + 1]] for k in range(9)]
    wanted = [found[0] if found else 5 for found in inside]
    for run in (
        lambda given: evaluate(graph, given),
        lambda given: interpret.run(lower(graph, [tuple(graph.outputs)]), given),
        lambda given: evaluate(as_scatters(graph), given),
    ):
        assert run([np.array(starts)])[0].tolist() == wanted
        for wrong in ([0, 4, 3, 5, 9, 9], [0, 4, 4, 5, 9, 10], [-1, 4, 4, 5, 9, 9]):
            with pytest.raises(IndexOutOfRange):
                run([np.array(wrong)])


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("by", ["lengths", "offsets"])
def test_gradients_of_segments_on_every_level(reduce: str, by: str) -> None:
    """Elements before the first offset, and behind the last, are of no segment.

    Without ties: of these torch's shares a gradient only where it is positive.
    """
    torch.manual_seed(0)
    given = torch.tensor([20, 0, 17, 3]) if by == "lengths" else torch.tensor([2, 20, 20, 37])
    x = (torch.randperm(40) - 19).double().requires_grad_()

    def f(x: torch.Tensor) -> torch.Tensor:
        how: dict[str, Any] = {by: given}
        return torch.segment_reduce(x, reduce, unsafe=True, **how).nan_to_num().square()

    (wanted,) = torch.autograd.grad(f(x).sum(), x)
    (found,) = torch.autograd.grad(weft.compile(f)(x).sum(), x)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_gradients_of_one_segment(reduce: str) -> None:
    """The loop over it ends at what is loaded, at a place that no axis tells."""
    f = weft.compile(
        lambda x, n: torch.segment_reduce(x, reduce, lengths=n).square(), fallback="error"
    )
    x = torch.randperm(120).reshape(40, 3).double().requires_grad_()
    (found,) = torch.autograd.grad(f(x, torch.tensor([40])).sum(), x)
    whole = (x.sum(0) if reduce == "sum" else x.amax(0)).square()
    torch.testing.assert_close(found, torch.autograd.grad(whole.sum(), x)[0])
