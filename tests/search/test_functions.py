"""Laws of exponentials, logarithms and maxima: fewer of them, values of eager, and what stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from tests.search.programs import graph_of
from weft.core.node import Graph
from weft.scalar.monoid import MAX, MIN
from weft.tensor.ops import Map, Reduce

Run = Callable[..., Any]


def divergence(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of two softmaxes, by its definition."""
    p, q = x.softmax(-1), y.softmax(-1)
    return (p * (p.log() - q.log())).sum(-1)


def entropy(x: torch.Tensor) -> torch.Tensor:
    p = x.softmax(-1)
    return -(p * p.log()).sum(-1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(q @ k.mT / 8, -1).exp() @ v


def written_out(x: torch.Tensor) -> torch.Tensor:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return (e / e.sum(-1, keepdim=True)).log()


def by_logarithm(s: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    m = s.amax(-1, keepdim=True)
    return (s - (m + (s - m).exp().sum(-1, keepdim=True).log())).exp() @ v


def loss(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return F.nll_loss(x.softmax(-1).log(), i)


def two_heads(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A maximum beside a mean of the same sum."""
    whole = x[:, None] + y[None]
    return whole.amax(1) + whole.mean(1)


PROGRAMS: dict[str, tuple[Run, list[tuple[int, ...]]]] = {
    "log(softmax)": (lambda x: x.softmax(-1).log(), [(64, 1000)]),
    "log(softmax), over columns": (lambda x: x.softmax(0).log(), [(999, 65)]),
    "log(softmax), written out": (written_out, [(64, 1000)]),
    "log(softmax), images": (lambda x: x.softmax(1).log(), [(2, 21, 33, 35)]),
    "exp(log_softmax)@v": (lambda s, v: F.log_softmax(s, -1).exp() @ v, [(256, 300), (300, 64)]),
    "softmax by logarithms": (by_logarithm, [(256, 300), (300, 64)]),
    "attention": (attention, [(4, 128, 64)] * 3),
    "divergence": (divergence, [(64, 1000), (64, 1000)]),
    "entropy": (entropy, [(64, 1000)]),
    "log(exp)": (lambda x, y: (x.exp() + 0).log() + y, [(300, 300), (300, 300)]),
}
FARTHEST: dict[str, tuple[Run, list[tuple[int, ...]]]] = {
    "max of a sum": (lambda x, y: (x[:, None] + y[None]).amax(), [(999,), (1001,)]),
    "max of rows": (lambda x, y: (x[:, None] - y[None]).amax(1), [(999,), (1001,)]),
    "min of a sum": (lambda x, y: (x[:, None] + y[None]).amin(), [(999,), (1001,)]),
    "max of three": (
        lambda x, y, z: (x[:, None, None] + y[None, :, None] + z).amax((1, 2)),
        [(100,), (101,), (102,)],
    ),
}


def inputs(shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(s) * 3 for s in shapes]


def functions(graph: Graph) -> Counter[str]:
    """How many elements of each function a graph computes."""
    found = Counter[str]()
    for n in graph.nodes():
        if isinstance(n.op, Map) and n.op.function.name in ("exp", "log"):
            found[n.op.function.name] += n.type.size
    return found


def compared(graph: Graph) -> int:
    folds = (n for n in graph.nodes() if isinstance(n.op, Reduce) and n.op.monoid in (MAX, MIN))
    return sum(n.args[0].type.size for n in folds)


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_of_each_element_go(name: str) -> None:
    run, shapes = PROGRAMS[name]
    plain, found = (functions(graph_of(run, inputs(shapes), s)) for s in ("off", "on"))
    assert found.total() < 0.7 * plain.total()


@pytest.mark.parametrize("name", FARTHEST)
def test_a_maximum_of_a_sum_is_a_sum_of_maxima(name: str) -> None:
    run, shapes = FARTHEST[name]
    plain, found = (compared(graph_of(run, inputs(shapes), s)) for s in ("off", "on"))
    assert 50 * found < plain


# Near-equal distributions: small beside its terms, as the next test has it, and as the README says.
CANCELS = {("divergence", 0.1)}


@pytest.mark.parametrize("name", PROGRAMS | FARTHEST)
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_values_are_at_least_as_good_as_those_of_eager(name: str, scale: float) -> None:
    run, shapes = (PROGRAMS | FARTHEST)[name]
    given = [x * scale for x in inputs(shapes)]
    exact, eager = run(*(x.double() for x in given)), run(*given)
    found = weft.compile(run, search="on", fallback="error")(*given)
    finite = eager.isfinite()
    assert found[finite].isfinite().all() and finite.float().mean() > 0.2
    size = exact[finite].abs().mean()
    errors = [((y.double() - exact)[finite].abs().mean() / size).item() for y in (eager, found)]
    assert errors[1] <= max((4 if (name, scale) in CANCELS else 2) * errors[0], 2e-7)


def test_what_cancels_is_near_beside_its_terms() -> None:
    """Near-equal distributions: eager rounds each logarithm, here that of a sum is."""
    given = [x * 1e-3 for x in inputs(PROGRAMS["divergence"][1])]
    exact = divergence(*(x.double() for x in given))
    found = weft.compile(divergence, search="on", fallback="error")(*given)
    term = given[0].softmax(-1).log().abs().max()
    assert ((found - exact).abs() <= 2**-23 * term).all()


@pytest.mark.parametrize("run", [loss, lambda x, i: F.cross_entropy(x, i)], ids=["nll", "plain"])
def test_gradients_of_a_loss(run: Run) -> None:
    torch.manual_seed(0)
    x, i = torch.randn(64, 1000), torch.randint(1000, (64,))

    def gradient(f: Run, dtype: torch.dtype) -> torch.Tensor:
        given = x.to(dtype).requires_grad_()
        f(given, i).backward()
        assert given.grad is not None
        return given.grad

    exact, eager = gradient(run, torch.float64), gradient(run, torch.float32)
    found = gradient(weft.compile(run, search="on"), torch.float32)
    errors = [((g.double() - exact).abs().max() / exact.abs().max()).item() for g in (eager, found)]
    assert errors[1] <= max(2 * errors[0], 2e-7)


# ---- what stays


def same_graph(run: Run, given: list[torch.Tensor]) -> bool:
    return graph_of(run, given).outputs == graph_of(run, given, "off").outputs


@pytest.mark.parametrize(
    ("run", "shapes"),
    [
        (lambda x: F.log_softmax(x, -1), [(64, 1000)]),
        (lambda x: x.logsumexp(-1), [(64, 1000)]),
        (lambda x, y: (x.exp() * y).log(), [(64, 1000), (64, 1000)]),  # y may be negative
        (lambda x: (x.softmax(-1) + 1e-9).log(), [(64, 1000)]),
        (lambda x, y: (x.exp() + y.exp()).log(), [(64, 1000), (64, 1000)]),
        (lambda x, y: (x[:, None] * y[None]).amax(1), [(99,), (98,)]),  # y may be negative
        (lambda x: x.double().softmax(-1).float().log(), [(64, 100)]),
    ],
    ids=["log_softmax", "logsumexp", "negative", "shifted", "sum", "product", "rounded"],
)
def test_what_stays(run: Run, shapes: list[tuple[int, ...]]) -> None:
    assert same_graph(run, inputs(shapes))


def test_a_large_exponential_stays_below_a_logarithm() -> None:
    """Eager has exp(x - inf) = 0 where exp(x) is infinite: no product with 1 / inf is that."""
    run = lambda x: (x - x.exp().sum(-1, keepdim=True).log()).exp()  # noqa: E731
    assert same_graph(run, inputs([(64, 1000)]))


@pytest.mark.parametrize(
    "run", [lambda x: F.log_softmax(x, -1).exp(), lambda x: x.softmax(-1).log()], ids=["exp", "log"]
)
def test_an_axis_of_one_element(run: Run) -> None:
    """Its numbers are their own maximum: a difference is its own negative."""
    x = torch.randn(3, 1)
    torch.testing.assert_close(weft.compile(run, search="on", fallback="error")(x), run(x))


def test_integers_wrap() -> None:
    """The sum of the largest ones may be the least."""
    x, y = torch.tensor([2**31 - 1, 0], dtype=torch.int32), torch.tensor([1, -5], dtype=torch.int32)
    run = lambda x, y: (x[:, None] + y[None]).amax()  # noqa: E731
    assert weft.compile(run, search="on")(x, y) == run(x, y)
