"""Sizes that depend on what tensors hold: programs go on after the call that makes them.

Each program is called with sizes of its own; after some calls nothing more is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch._dynamo as dynamo
from torch.nn import functional as F

import weft
from tests.frontend.test_sizes import assert_equal
from weft.core.errors import WeftError
from weft.frontend.specialise import GraphProgram


def nonzero(x: torch.Tensor, n: torch.Tensor) -> Any:
    i = (x > 0).nonzero()
    return (x * 2)[i[:, 0], i[:, 1]] + 1


def masked(x: torch.Tensor, n: torch.Tensor) -> Any:
    y = x[x > 0]
    return y.exp().sum(), y * 2


def number(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = n.sum().item()
    torch._check(k >= 0)
    return torch.ones(k).cumsum(0) * x.sum()


def repeated(x: torch.Tensor, n: torch.Tensor) -> Any:
    z = torch.repeat_interleave(F.relu(x * 3), n, dim=0) * 2
    return torch.softmax(z, 0) @ torch.ones(3, 4), x + 1


def twice(x: torch.Tensor, n: torch.Tensor) -> Any:
    y = torch.repeat_interleave(x, n, dim=0).tanh()
    return y[y[:, 0] > 0] * 2 + y.sum()


PROGRAMS = [nonzero, masked, number, repeated, twice]


@pytest.fixture
def whole() -> Iterator[None]:
    """Dynamo ends no graph where a size depends on values."""
    dynamo.reset()
    options = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with dynamo.config.patch(options):
        yield
    dynamo.reset()


def inputs(k: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(k)
    return torch.randn(6 + k, 3), torch.randint(1, 4, (6 + k,))


def compiled_in(f: Callable[..., Any], run: Callable[[int], None], calls: int) -> list[int]:
    """How many times something is compiled in each of the calls."""
    counts: list[int] = []
    own = GraphProgram._compiled  # pyright: ignore[reportPrivateUsage]

    def counting(self: GraphProgram, *given: Any) -> Any:
        counts[-1] += 1
        return own(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphProgram, "_compiled", counting)
        for k in range(calls):
            counts.append(0)
            run(k)
    return counts


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("gradients", [False, True])
def test_what_follows_is_for_any_size(whole: None, program: Any, gradients: bool) -> None:
    f = torch.compile(program, backend="weft", fullgraph=True)

    def run(k: int) -> None:
        x, n = inputs(k)
        if not gradients:
            assert_equal(f(x, n), program(x, n))
            return
        found: list[Sequence[torch.Tensor]] = []
        for call in (f, program):
            leaf = x.clone().requires_grad_()
            out = call(leaf, n)
            results = out if isinstance(out, tuple) else (out,)
            total = sum((r.sum() for r in results), torch.zeros(()))
            found.append([*results, *torch.autograd.grad(total, leaf)])
        assert_equal(found[0], found[1])

    assert compiled_in(f, run, 9)[4:] == [0] * 5


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_graphs_that_dynamo_ends_there_are_for_any_size(program: Any) -> None:
    f = weft.compile(program)

    def run(k: int) -> None:
        assert_equal(f(*inputs(k)), program(*inputs(k)))

    assert compiled_in(f, run, 8)[4:] == [0] * 4


def test_what_is_made_in_eager_is_told(whole: None) -> None:
    f = weft.compile(repeated)
    f(*inputs(0))
    assert "the shape of what repeat_interleave gives depends on values at" in "\n".join(f.reasons)
    assert "z = torch.repeat_interleave(" in "\n".join(f.reasons)


def test_an_error_where_the_fallback_is_one(whole: None) -> None:
    f = weft.compile(repeated, fallback="error")
    with pytest.raises(WeftError, match="depends on values"):
        f(*inputs(0))


def test_sizes_none_and_one(whole: None) -> None:
    f = torch.compile(masked, backend="weft", fullgraph=True)
    for x in (torch.ones(4), -torch.ones(4), torch.tensor([1.0, -1.0]), torch.zeros(0)):
        assert_equal(f(x, x), masked(x, x))


def test_a_size_that_the_caller_calls_unbacked() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y.T).softmax(-1) * 2

    dynamo.reset()
    f = torch.compile(program, backend="weft")

    def run(k: int) -> None:
        x, y = torch.randn(5 + k, 4), torch.randn(9 - k, 4)
        for tensor in (x, y):
            dynamo.decorators.mark_unbacked(tensor, 0)
        assert_equal(f(x, y), program(x, y))

    assert compiled_in(f, run, 8) == [1] + [0] * 7
    run(8)  # a size of 1 has a program of its own
    dynamo.reset()
