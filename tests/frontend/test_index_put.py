"""index_put that accumulates, natively: negative indices, several axes, kept ones before, after."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.captures import capture_call
from weft.core.errors import WeftError
from weft.frontend.lower import to_tensor
from weft.targets.gpu import GPUS
from weft.text import print_program


def index(n: int, *shape: int) -> torch.Tensor:
    """From -n to n - 1, with many twice."""
    return torch.randint(-n, n, shape)


CASES: dict[str, tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...]]] = {
    "rows": ((7, 5), (index(7, 12),), (12, 5)),
    "columns": ((3, 7), (None, index(7, 12)), (3, 12)),
    "two axes": ((7, 5), (index(7, 12), index(5, 12)), (12,)),
    "broadcast": ((4, 7, 5, 3), (None, index(7, 6, 1), index(5, 4)), (4, 6, 4, 3)),
    "one value": ((7, 5), (index(7, 12),), ()),
    "one row": ((7, 5), (index(7, 4, 3),), (5,)),
    "scalar index": ((7, 5), (torch.tensor(-2),), (5,)),
    "narrow index": ((7, 5), (index(7, 12).int(),), (12, 5)),
    "no index": ((7, 5), (index(7, 0),), (0, 5)),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str, dtype: torch.dtype) -> None:
    shape, indices, of_values = CASES[name]
    x, values = (torch.randint(-4, 5, s).to(dtype) for s in (shape, of_values))  # sums are exact

    def put(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.index_put(x, list(indices), values, True)

    compiled = weft.compile(put)
    torch.testing.assert_close(compiled(x, values), put(x, values), rtol=0, atol=0)
    assert not weft.report(compiled).externs


@pytest.mark.parametrize("bad", [7, -8])
def test_an_index_beyond_an_axis_is_an_error(bad: int) -> None:
    """Also where the place of all axes together is inside."""
    x, values = torch.zeros(7, 5), torch.ones(1)

    def put(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return x.index_put((i, j), v, accumulate=True)

    compiled = weft.compile(put)
    one = torch.tensor([1])
    with pytest.raises((WeftError, IndexError)):
        compiled(x, torch.tensor([bad]), one, values)
    with pytest.raises((WeftError, IndexError)):
        compiled(x, one, torch.tensor([5]), values)


@pytest.mark.parametrize("shape", [(3, 4), (3, 1), (2, 1, 4)])
def test_values_that_do_not_fit_are_an_error(shape: tuple[int, ...]) -> None:
    """More rows of values than there are indices: none is dropped."""
    compiled = weft.compile(lambda x, i, v: x.index_put((i,), v, accumulate=True))
    with pytest.raises((WeftError, RuntimeError, IndexError)):
        compiled(torch.zeros(5, 4), torch.tensor([0]), torch.ones(shape))


def test_no_place_of_an_empty_axis_is_legal() -> None:
    compiled = weft.compile(lambda x, i, v: x.index_put((i,), v, accumulate=True))
    with pytest.raises((WeftError, IndexError)):
        compiled(torch.zeros(0, 4), torch.tensor([0]), torch.ones(1, 4))


def test_what_keeps_the_last_value_or_has_a_mask() -> None:
    def puts(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> Any:
        return x.index_put((i,), v), x.index_put((x[:, 0] > 0,), v[0], accumulate=True)

    compiled = weft.compile(puts, fallback="error")
    x, i, v = torch.randn(7, 5), torch.tensor([1, 3]), torch.randn(2, 5)
    for a, b in zip(compiled(x, i, v), puts(x, i, v), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_call_of_the_targets_library_stays_atens() -> None:
    """On a GPU a scatter folds its values one by one, where ATen sorts them."""

    def put(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return x.index_put((i,), v, accumulate=True)

    graph = capture_call(put, (torch.zeros(7, 5), torch.tensor([1, 3]), torch.ones(2, 5)), {}).graph
    library = GPUS["cuda:sm_90a"].tabled
    kept = print_program(to_tensor(graph, library=library))
    assert "aten.index_put.default" in kept and "is faster in ATen" in kept
    for own in (to_tensor(graph), to_tensor(graph, "error", library)):
        assert "aten.index_put" not in print_program(own)


def test_the_gradient_of_indexing() -> None:
    def read(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return x[:, i, j] * 2

    x = torch.randn(3, 7, 5, dtype=torch.float64, requires_grad=True)
    at, compiled = (index(7, 9), index(5, 9)), weft.compile(read)
    weights = torch.randn(3, 9, dtype=torch.float64)
    found, expected = (torch.autograd.grad(f(x, *at), x, weights)[0] for f in (compiled, read))
    torch.testing.assert_close(found, expected)
