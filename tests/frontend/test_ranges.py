"""Programs for a range of sizes: beyond where a schedule is good the program is compiled again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from weft import driver
from weft.runtime.cache import Cache

Entry = Callable[[Any], Any]


def ours(fn: Any) -> Any:
    return weft.compile(fn, dynamic=True)


def theirs(fn: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(fn, backend="weft", dynamic=True, options={"dynamic": True})


def programs_of(f: Any) -> int:
    """Those of all graphs, and of all ranges of their sizes."""
    sessions = [f] if hasattr(f, "programs") else [*driver.SESSIONS.values()]
    return sum(len(p.artifact.all()) for session in sessions for p in session.programs)


def ranges_of(f: Any) -> list[str]:
    return [line.rsplit(" near")[0] for line in f.report.sizes]


def check(f: Any, fn: Any, *sizes: tuple[int, ...]) -> None:
    for size in sizes:
        x = torch.randn(*size)
        torch.testing.assert_close(f(x), fn(x), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("entry", [ours, theirs])
@pytest.mark.parametrize("first", [3, 64])
def test_few_rows_and_many_have_programs_of_their_own(entry: Entry, first: int) -> None:
    layer = torch.nn.Linear(512, 512).requires_grad_(False)
    f = entry(layer)
    before = programs_of(f)
    check(f, layer, (first, 512))
    assert programs_of(f) == before + 1
    check(f, layer, *((n, 512) for n in (600, 2, 3, 64, 31, 32, 33, 13, 127, 128, 1025, 7)))
    assert programs_of(f) == before + 2
    if entry is ours:
        assert sorted(ranges_of(f)) == ["s0: 2..31", "s0: 32..65536"]


def test_a_range_is_no_reason_to_trace_again() -> None:
    """One graph of Dynamo's has the programs of all its ranges, also of the way back."""
    layer, seen = torch.nn.Linear(512, 512), list[Any]()
    compile_graph = driver.graph_backend(dynamic=True)

    def backend(graph: Any, examples: Any) -> Any:
        seen.append(graph)
        return compile_graph(graph, examples)

    torch._dynamo.reset()
    f = torch.compile(layer, backend=backend, dynamic=True)
    before = programs_of(f)
    for rows in (64, 3, 31, 600):
        x = torch.randn(rows, 512).requires_grad_()
        grads = [torch.autograd.grad(run(x).square().sum(), x)[0] for run in (f, layer)]
        torch.testing.assert_close(*grads, atol=1e-3, rtol=1e-3)
    assert len(seen) == 1 and programs_of(f) >= before + 3


def test_a_program_for_other_sizes_is_told(caplog: pytest.LogCaptureFixture) -> None:
    layer = torch.nn.Linear(512, 512).requires_grad_(False)
    f = ours(layer)
    with caplog.at_level(logging.INFO, "weft"):
        check(f, layer, (64, 512), (3, 512), (2, 512))
    told = [r.getMessage() for r in caplog.records if r.name == "weft.link.ranges"]
    assert told == ["Linear is compiled again for s0 = 3: others are for s0 in 32..65536"]


def test_threads_that_meet_a_range_at_once_make_one_program() -> None:
    layer = torch.nn.Linear(512, 512).requires_grad_(False)
    f = ours(layer)
    check(f, layer, (64, 512))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda rows: check(f, layer, (rows, 512)), [3, 4, 5, 6, 64, 65, 2, 31]))
    assert programs_of(f) == 2


def test_what_a_program_for_other_sizes_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.nn.Linear(512, 512).requires_grad_(False)
    f = ours(layer)
    check(f, layer, (64, 512))
    with monkeypatch.context() as broken:
        broken.setattr(driver, "lower", lambda *_: pytest.fail("no space left"))
        broken.setattr(driver, "relink", lambda *_: None)
        with pytest.raises(pytest.fail.Exception, match="no space left"):
            f(torch.randn(3, 512))
        check(f, layer, (70, 512))
    check(f, layer, (3, 512))


def test_rows_that_are_a_product_of_sizes() -> None:
    layer = torch.nn.Linear(512, 512).requires_grad_(False)
    f = ours(layer)
    sizes = ((4, 30), (2, 3), (15, 2), (16, 2), (5, 6), (3, 11), (70, 2), (2, 400), (31, 31))
    check(f, layer, *((*size, 512) for size in sizes))
    assert programs_of(f) == 2
    assert ranges_of(f)[2] == "s0 * s1: 32..4294967296" and ranges_of(f)[5] == "s0 * s1: 4..31"


def test_what_has_one_schedule_has_one_range() -> None:
    def fn(x: Any) -> Any:
        return x.softmax(-1) @ torch.ones(8, 8)

    f = ours(fn)
    check(f, fn, (3, 8), (64, 8), (2, 8), (5000, 8))
    assert ranges_of(f) == ["s0: 2..65536"]


def test_a_range_that_the_caller_gave_is_not_cut() -> None:
    layer = torch.nn.Linear(512, 512).requires_grad_(False)
    f = ours(layer)
    for rows in (64, 3, 100):
        x = torch.randn(rows, 512)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=4096)
        torch.testing.assert_close(f(x), layer(x), atol=1e-3, rtol=1e-3)
    assert programs_of(f) == 1


@pytest.mark.parametrize("entry", [ours, theirs])
@pytest.mark.parametrize("fn", [torch.relu, lambda q: F.scaled_dot_product_attention(q, q, q)])
@pytest.mark.parametrize("ends", [{}, {"min": 2, "max": 1_000_000}])
def test_a_size_that_the_caller_has_marked_is_not_fixed(entry: Entry, fn: Any, ends: Any) -> None:
    f = entry(fn)  # attention asks for the square root of the last size
    for size in (16, 8):
        x = torch.randn(2, 4, 5, size)
        torch._dynamo.mark_dynamic(x, 3, **ends)
        torch.testing.assert_close(f(x), fn(x))
    assert entry is theirs or not f.reasons


def test_training_in_ranges() -> None:
    layer = torch.nn.Linear(512, 512)
    f = ours(layer)
    for rows in (64, 3, 31, 32, 600, 2):
        x, grads = torch.randn(rows, 512), list[Any]()
        for run in (f, layer):
            layer.zero_grad()
            given = x.clone().requires_grad_()
            run(given).square().sum().backward()
            grads.append((given.grad, *(p.grad for p in layer.parameters())))
        for found, wanted in zip(*grads, strict=True):
            torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)
    assert programs_of(f) <= 6 and not f.reasons


def test_a_program_is_found_again_by_its_range() -> None:
    layer = torch.nn.Linear(512, 384).requires_grad_(False)
    for first, cached in ((64, False), (40, True), (5, False), (4, True), (500, True)):
        f = ours(layer)
        check(f, layer, (first, 512))
        assert f.report.cached or not cached


@pytest.mark.parametrize("entry", [ours, theirs])
def test_many_short_sums_have_no_blocks_and_longer_ones_do(entry: Entry) -> None:
    def fn(x: Any) -> Any:
        return x.sum(-1)

    f = entry(fn)
    before = programs_of(f)
    check(f, fn, *((4096, n) for n in (33, 4096, 2, 16, 999)))
    assert programs_of(f) == before + 1
    x = torch.rand(100, 500_000)
    torch.testing.assert_close(f(x).double(), x.double().sum(-1), atol=0, rtol=3e-7)
    assert programs_of(f) == before + 2
    if entry is ours:
        assert ranges_of(f)[1] == "s1: 2..4096"
        assert [text.count(" by ") for text in f.ir("tile").split("program")[1:]] == [2, 4]


def test_short_products_have_blocks_of_no_blocks() -> None:
    """At (1000, 16) @ (16, 1000) it took twice as long to go through both."""

    def fn(x: Any) -> Any:
        return x @ x.mT

    f = ours(fn)
    check(f, fn, (100, 16), (40, 4096), (50, 2))
    assert ranges_of(f)[1] == "s1: 2..4096" and programs_of(f) == 1
    check(f, fn, (40, 5000))
    assert programs_of(f) == 2
    assert [text.count(" by 2048") for text in f.ir("tile").split("program")[1:]] == [0, 1]


def test_sums_of_a_range_that_the_caller_gave_have_one_program() -> None:
    f = ours(lambda x: x.sum(-1))
    for size in ((4096, 33), (100, 500_000), (3, 2)):
        x = torch.rand(*size)
        torch._dynamo.mark_dynamic(x, 1, min=2, max=600_000)
        torch.testing.assert_close(f(x).double(), x.double().sum(-1), atol=0, rtol=3e-7)
    assert programs_of(f) == 1


def test_a_few_sums_have_one_program() -> None:
    def fn(x: Any) -> Any:
        return x.sum((0, 2)), x.amax(-1)

    f = ours(fn)
    for rows in (3, 700, 2):
        x = torch.randn(rows, 5, 30)
        torch._dynamo.mark_static(x, (1, 2))
        torch.testing.assert_close(f(x), fn(x), atol=1e-3, rtol=1e-3)
    assert ranges_of(f) == ["s0: 2..65536"]


def test_a_program_that_is_gone_is_made_for_its_own_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cache noted for it may be a wider range, found with other hints."""
    monkeypatch.setattr(Cache, "notes", lambda cache, key: [{}])

    def fn(x: Any) -> Any:
        return x.sum(-1) * 5

    f = ours(fn)
    check(f, fn, (4096, 33))
    assert ranges_of(f)[1] == "s1: 2..4096"


class Two(torch.nn.Module):
    """Rows of one contraction are few, and then those of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 512), torch.nn.Linear(2048, 32)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.a(x)[:, None, :] * self.b(y).amax(1)[None, :, None]


def test_sizes_that_are_few_stay_few() -> None:
    """To keep one as it was met made the other larger, which was few then in its turn."""
    module = Two()
    f = weft.compile(module, dynamic=True, target="cpu:avx2")
    with torch.no_grad():
        x, y = torch.randn(3, 64), torch.randn(40, 2048)
        torch.testing.assert_close(f(x, y), module(x, y))
    assert programs_of(f) == 1 and "s0: 2..31 near 3" in f.report.sizes


def test_a_program_is_for_the_sizes_that_it_is_made_for() -> None:
    """Sums that are thought long, for they are over two sizes, were short when they were met."""

    def fn(a: torch.Tensor, b: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.sin(a[:, None, None] * b[None]).sum((1, 2)) + z.sum(1)

    f = weft.compile(fn, dynamic=True, target="cpu:avx2")
    for length in (9, 6000):
        given = torch.randn(40), torch.randn(3, 5), torch.rand(40, length)
        torch.testing.assert_close(f(*given), fn(*given))
    assert programs_of(f) == 2
    assert "s3: 2..4096 near 9" in f.report.sizes and "s3: 4097..65536 near 6000" in f.report.sizes
