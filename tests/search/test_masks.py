"""Deltas, steps and split axes: random programs, what stays as it is, and what guards them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import weft
from tests.search.programs import MASKED, graph_of
from weft.core.node import Graph
from weft.interpret.tensors import evaluate, to_numpy
from weft.search import extract, masks, splits
from weft.search import search as module
from weft.tensor.ops import Gather, Reduce, Scan

Run = Callable[..., Any]


def count(graph: Graph, kind: type[Any]) -> int:
    return sum(isinstance(n.op, kind) for n in graph.nodes())


@pytest.fixture
def any_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finds are taken whatever they cost: these are small."""
    monkeypatch.setattr(module, "MARGIN", 1e9)
    monkeypatch.setattr(extract.Extraction, "_moved", lambda *_: 0.0)


def values(graph: Graph, **inputs: torch.Tensor) -> np.ndarray:
    (out,) = evaluate(graph, [to_numpy(inputs[n.op.label]) for n in graph.inputs])  # type: ignore[attr-defined]
    return out.copy()


# ---- random programs


class Drawn(NamedTuple):
    """A random program: a matrix of zeros and ones, or of a diagonal, by a product or a sum."""

    kind: str
    dtype: torch.dtype
    rows: int
    inner: int
    columns: int
    offset: int
    batch: tuple[int, ...]
    left: bool
    chained: bool

    def mask(self, i: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        """A matrix [rows, inner]."""
        n, m = self.rows, self.inner
        if self.kind == "eye":
            return torch.eye(n, m, dtype=d.dtype)
        if self.kind == "diag":
            return torch.diag_embed(d)
        if self.kind == "rows":
            return F.one_hot(i.clamp(0, m - 1), m).to(d.dtype)
        if self.kind == "equal":
            return (i[..., None] + self.offset == torch.arange(m)).to(d.dtype)
        part = torch.tril if self.kind == "tril" else torch.triu
        return part(torch.ones(n, m, dtype=d.dtype), self.offset)

    def run(self, i: torch.Tensor, d: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
        inside = 3 * x - x * y[..., :1] if self.chained else x
        made = self.mask(i, d)
        return made @ inside if self.left else inside.mT @ made.mT


def draw(seed: int) -> tuple[Drawn, dict[str, torch.Tensor]]:
    r = Random(seed)
    torch.manual_seed(seed)
    kind = r.choice(["eye", "diag", "rows", "equal", "tril", "triu"])
    dtype = r.choice([torch.float32, torch.float64, torch.int64, torch.int32])
    rows, inner, columns = (r.randint(2, 21) for _ in range(3))
    rows = inner if kind == "diag" else rows
    offset, batch = r.randint(-inner, inner), r.choice([(), (3,)])
    drawn = Drawn(kind, dtype, rows, inner, columns, offset, batch, *r.choices([True, False], k=2))
    inputs = {"i": torch.randint(-5, inner + 5, (*batch, rows))}
    for name, shape in {"d": (inner,), "x": (inner, columns), "y": (inner, 2)}.items():
        inputs[name] = torch.randint(-99, 100, (*batch, *shape)).to(dtype)
    return drawn, inputs


@pytest.mark.usefixtures("any_price")
@pytest.mark.parametrize("seed", range(48))
def test_random_programs(seed: int) -> None:
    """No sum is left; integers are exact, and floats, which are whole here, are as well."""
    drawn, inputs = draw(seed)
    graph = graph_of(drawn.run, [*inputs.values()])
    assert np.array_equal(values(graph, **inputs), to_numpy(drawn.run(**inputs))), drawn
    trivial = drawn.mask(inputs["i"], inputs["d"]).unique().numel() == 1  # no mask is left
    assert trivial or not count(graph, Reduce), drawn


# ---- what is made of them


def test_an_embedding_is_a_gather_and_a_prefix_sum_a_scan() -> None:
    kinds = {"one_hot(i)@E": Gather, "tril(ones)@x": Scan, "triu(ones, -3)@x": Scan}
    for name, kind in kinds.items():
        graph = graph_of(MASKED[name].run, MASKED[name].inputs())
        assert count(graph, kind) == 1 and not count(graph, Reduce)


def test_a_product_is_not_computed_for_more_rows_than_it_has() -> None:
    """700 rows of a product that has 50: it is computed first, then gathered."""

    def run(i: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.one_hot(i, 50).to(a.dtype) @ (a @ b)

    inputs = torch.randint(50, (700,)), torch.randn(50, 64), torch.randn(64, 128)
    graph = graph_of(run, [*inputs])
    (product,) = (n for n in graph.nodes() if isinstance(n.op, Reduce))
    assert product.args[0].type.size == 50 * 64 * 128 and count(graph, Gather) == 1


def test_classes_out_of_range_are_errors_as_before() -> None:
    program = MASKED["one_hot(i)@E"]
    f = weft.compile(program.run, search="on", fallback="error")
    i, e = program.inputs()
    f(i, e)
    i[3] = e.shape[0]
    with pytest.raises(IndexError):
        f(i, e)


# ---- what stays

INFINITE = float("inf")
N = 256


def data_equal(i: torch.Tensor, j: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (i[:, None] == j[None]).to(x.dtype) @ x


def itself(x: torch.Tensor) -> torch.Tensor:
    """Compares what is summed over with a part of itself."""
    k = torch.arange(x.shape[0])
    return torch.where(k[:, None] == (k // 2)[:, None], x, 0).sum(0)


def cut_kron(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """250 columns, of blocks of 16."""
    return torch.kron(a, b)[:, :250] @ x


STAY: dict[str, tuple[Run, list[torch.Tensor]]] = {
    "equal data": (data_equal, [torch.arange(N), torch.arange(N).flip(0), torch.randn(N, 8)]),
    "a mask of data": (
        lambda m, x: m.to(x.dtype) @ x, [torch.rand(N, N) > 0.5, torch.randn(N, 64)],
    ),
    "positive data": (
        lambda a, x: (a > 0).to(x.dtype) @ x, [torch.randn(N, N), torch.randn(N, 64)],
    ),
    "tril of data": (lambda a, x: torch.tril(a) @ x, [torch.randn(N, N), torch.randn(N, 64)]),
    "lengths of data": (
        lambda n, x: (torch.arange(N) < n[:, None]).to(x.dtype) @ x,
        [torch.randint(N, (N,)), torch.randn(N, 64)],
    ),
    "sums by class": (
        lambda i, x: F.one_hot(i, 50).to(x.dtype).mT @ x,
        [torch.randint(50, (N,)), torch.randn(N, 64)],
    ),
    "itself": (itself, [torch.randn(N - 1, 64)]),
    "causal attention": (
        lambda q, k, v: torch.tril(q @ k.mT) @ v, [torch.randn(2, N, 64) for _ in range(3)],
    ),
    "kron, cut": (cut_kron, [torch.randn(16, 16), torch.randn(16, 16), torch.randn(250, 8)]),
    "windows of a sum": (
        lambda x: (torch.tril(torch.ones(N, N)) - torch.tril(torch.ones(N, N), -8)) @ x,
        [torch.randn(N, 64)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STAY)
def test_stays_as_written(name: str) -> None:
    run, inputs = STAY[name]
    assert graph_of(run, inputs).outputs == graph_of(run, inputs, "off").outputs


def test_itself_in_parts_of_an_axis() -> None:
    """k == k // 2 is 2 a + b == a, so that b is known, and then a is."""
    x = torch.randn(N, 64)
    torch.testing.assert_close(weft.compile(itself, search="on")(x), x[0])


def test_off_drops_no_products() -> None:
    x = torch.randn(8, 8)
    x[3, 3] = INFINITE

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.eye(8) @ x

    torch.testing.assert_close(weft.compile(run, search="off")(x), run(x), equal_nan=True)


def test_nothing_infinite_that_a_condition_keeps_out_gets_in() -> None:
    """tril(s) @ v @ w in another order: infinite numbers above the diagonal stay out of it."""
    s, v, w = torch.randn(N, N), torch.randn(N, N), torch.randn(N, 1)
    s[0, 1:] = INFINITE
    runs = (lambda s, v, w: torch.tril(s) @ v @ w), (lambda s, v, w: (torch.tril(s) * v) @ w)
    for run in runs:
        exact = run(s.double(), v.double(), w.double())
        got = weft.compile(run, search="on", fallback="error")(s, v, w)
        assert exact.isfinite().all() and got.isfinite().all()
        torch.testing.assert_close(got.double(), exact, rtol=1e-4, atol=1e-3)


def test_a_diagonal_is_chosen_and_never_multiplied_by_what_is_beside_it() -> None:
    s, x = torch.full((N, N), INFINITE), torch.randn(N, 64)
    s.fill_diagonal_(2.0)

    def run(s: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.eye(N, dtype=torch.bool), s, 0.0) @ x

    assert not count(graph_of(run, [s, x]), Reduce)
    torch.testing.assert_close(weft.compile(run, search="on")(s, x), 2 * x)


# ---- conditions of the laws, each of which is needed


@pytest.mark.parametrize("name", ["(i == rows)@E", "diag(d, 3)@A", "tril(ones, -3)@x"])
def test_without_the_range_a_find_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Rows that are not there would be read: the check sees it."""
    program = MASKED[name]
    monkeypatch.setattr(masks, "_is_inside", lambda *_: True)
    assert count(graph_of(program.run, program.inputs()), Reduce)


def test_an_axis_is_split_where_the_extent_is_a_multiple(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that condition the last columns of a kron that is cut are lost."""
    run, inputs = STAY["kron, cut"]
    named = dict(zip("abx", inputs, strict=True))
    torch.testing.assert_close(
        torch.from_numpy(values(graph_of(run, inputs), **named)), run(*inputs), rtol=1e-4, atol=1e-3
    )
    monkeypatch.setattr(splits, "splits_evenly", lambda extent, by: 1 < by < extent)
    wrong = torch.from_numpy(values(graph_of(run, inputs), **named))
    assert not torch.allclose(wrong, run(*inputs), rtol=1e-2, atol=1e-2)
