"""Known calls, which C makes without a frame of Python's: what changes between them is seen."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import weft
from weft.frontend.plans import ALL_RESULTS, plan_of


def quick(f: Any) -> bool:
    """Whether the last known call has a plan: C makes it."""
    return f._weft.hot[-1][4] is not None


def ints(*shape: int) -> torch.Tensor:
    return torch.arange(int(torch.Size(shape).numel())).reshape(shape)


def warm(f: Any, *args: Any, **kwargs: Any) -> Any:
    return [f(*args, **kwargs) for _ in range(3)][-1]


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a * b + 1,
        lambda a, b: (a + b, a - b),
        lambda a, b: [a + b],
        lambda a, b: (a - b, a + b, a - b),
        lambda a, b: {"sum": a + b, "n": 3},
        lambda a, b: (a, a + b),
    ],
)
def test_results_are_those_of_eager(fn: Any) -> None:
    f, (a, b) = weft.compile(fn), (ints(3, 4), ints(3, 4) * 2)
    warm(f, a, b)
    got, want = f(b, a), fn(b, a)
    assert type(got) is type(want)
    torch.testing.assert_close(got, want)


def test_each_call_has_new_results() -> None:
    f = weft.compile(lambda a: a + 1)
    warm(f, ints(4))
    assert quick(f)
    first, second = f(ints(4)), f(ints(4) * 2)
    assert first.tolist() == [1, 2, 3, 4] and second.tolist() == [1, 3, 5, 7]


def test_arguments_that_change() -> None:
    f = weft.compile(lambda a, b=2: a * b)
    for _ in range(3):
        for a in (ints(4), ints(2, 3), ints(4).double(), ints(8)[::2], ints(4).to(torch.int8)):
            for given in ((), (3,), (ints(1) + 5,)):
                want = a * (given[0] if given else 2)
                torch.testing.assert_close(f(a, *given), want)
            torch.testing.assert_close(f(a, b=4), a * 4)
    with pytest.raises(TypeError):
        f()
    with pytest.raises(TypeError):
        f(ints(4), c=1)
    assert f(ints(4)).tolist() == [0, 2, 4, 6]


def test_the_function_and_its_world_change(monkeypatch: pytest.MonkeyPatch) -> None:
    by = 2
    f = weft.compile(lambda a: a * by + FACTOR)
    assert warm(f, ints(3)).tolist() == [1, 3, 5]
    by = 3
    assert f(ints(3)).tolist() == [1, 4, 7]
    monkeypatch.setitem(globals(), "FACTOR", 10)
    assert f(ints(3)).tolist() == [10, 13, 16]

    def double(a: torch.Tensor) -> torch.Tensor:
        return a * 2

    g = weft.compile(double)
    assert warm(g, ints(3)).tolist() == [0, 2, 4]
    double.__code__ = (lambda a: a * 5).__code__
    assert g(ints(3)).tolist() == [0, 5, 10]


FACTOR = 1


def test_modules_that_change() -> None:
    net: Any = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    f, x = weft.compile(net), torch.randn(5, 3).double()

    def same() -> None:
        torch.testing.assert_close(f(x), net(x))

    with torch.no_grad():
        warm(f, x)
        assert quick(f)
        net[0].weight.add_(1)
        same()
        net[0].weight = nn.Parameter(torch.ones(4, 3).double())
        same()
        net[2].bias.data = torch.ones(2).double()
        same()
        net[1] = nn.Tanh()
        same()
        handle = net[0].register_forward_hook(lambda *given: given[2] * 2)
        same()
        handle.remove()
        same()
        net[2].forward = lambda x: x[:, :2] * 3
        same()


def test_modes() -> None:
    net, x = nn.Linear(3, 3), torch.randn(2, 3)
    f = weft.compile(net)
    with torch.no_grad():
        assert not warm(f, x).requires_grad and quick(f)
    assert warm(f, x).requires_grad
    for _ in range(2):
        with torch.no_grad():
            assert not f(x).requires_grad
            with torch.autocast("cpu", torch.bfloat16):
                assert f(x).dtype == torch.bfloat16
            assert f(x).dtype == torch.float32
        with torch.inference_mode():
            assert f(x).is_inference()
        assert f(x).requires_grad
    half = weft.compile(lambda a: torch.ones(2) + a)
    assert warm(half, ints(2)).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert half(ints(2)).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_arguments_that_want_gradients() -> None:
    f, x = weft.compile(lambda a: (a * a).sum()), torch.ones(3).double()
    assert not warm(f, x).requires_grad
    x.requires_grad_()
    f(x).backward()
    torch.testing.assert_close(x.grad, x.detach() * 2)
    assert not f(x.detach()).requires_grad


def test_transforms_around_a_known_call() -> None:
    f, x = weft.compile(lambda a: a.sin() * 2), torch.randn(3, 4).double()
    warm(f, x[0])
    assert quick(f)
    torch.testing.assert_close(torch.vmap(f)(x), x.sin() * 2)
    torch.testing.assert_close(torch.func.grad(lambda a: f(a).sum())(x[0]), x[0].cos() * 2)
    tangent: Any = torch.func.jvp(f, (x[0],), (torch.ones(4).double(),))[1]
    torch.testing.assert_close(tangent, x[0].cos() * 2)
    torch.testing.assert_close(f(x[0]), x[0].sin() * 2)


def test_inside_another_compiler() -> None:
    """Dynamo follows the function, also in a frame of its own after a graph has ended."""
    f, x = weft.compile(lambda a: a * 2), ints(3)
    warm(f, x)
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def outer(a: torch.Tensor) -> torch.Tensor:
        b = f(a) + 1
        torch._dynamo.graph_break()
        return f(b)

    g = torch.compile(outer, backend=backend)
    assert g(x).tolist() == [2, 6, 10] and len(graphs) == 2
    assert all(any(n.op == "call_function" for n in graph.graph.nodes) for graph in graphs)
    assert f(x).tolist() == [0, 2, 4]


def test_a_call_within_the_check_of_another() -> None:
    """As a mode, a property or a handler of a signal makes one."""
    inner: list[int] = []

    class Odd(nn.Module):
        @property
        def by(self) -> int:
            if not inner and hasattr(self, "ready"):
                inner.append(0)
                inner.extend(f(ints(2)).tolist())
            return 2

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return a * self.by

    odd: Any = Odd()
    f = weft.compile(odd)
    with torch.no_grad():
        warm(f, ints(3))
        odd.ready = True
        assert f(ints(3)).tolist() == [0, 2, 4] and f(ints(2)).tolist() == [0, 2]


def test_threads_at_once() -> None:
    f, wrong = weft.compile(lambda a, b: (a * b, a + b)), list[Any]()
    warm(f, ints(5), ints(5))

    def work(n: int) -> None:
        a, b = ints(5) + n, ints(5) * n
        for _ in range(300):
            product, total = f(a, b)
            if not (torch.equal(product, a * b) and torch.equal(total, a + b)):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(torch.get_num_threads() == 1, reason="no loop is shared by threads")
def test_long_loops_over_few_elements() -> None:
    """Such a call lets go of Python's lock, and has a team of threads, however small it is."""
    brief, long = (weft.compile(lambda a, n=n: (a + torch.arange(n)).sum()) for n in (4, 1 << 22))
    for f in (brief, long):
        warm(f, ints(1))
        assert quick(f)
    threads = [f._weft.hot[-1][PROGRAM][THREADS] for f in (brief, long)]
    assert threads == [None, torch.get_num_threads]


PROGRAM, THREADS = 6, 6  # of a known call, and of what its program is made of: weft_calls.c


def test_nothing_is_kept_of_a_call() -> None:
    f = weft.compile(lambda a, b: a + b)
    a, b = ints(4), ints(4)
    warm(f, a, b=b)
    found = f(a, b=b)
    alive = [weakref.ref(t) for t in (a, b, found)]
    del a, b, found
    assert not any(t() is not None for t in alive)
    alone, kept = weakref.ref(f), weakref.ref(f._weft)
    del f
    gc.collect()
    assert alone() is None and kept() is None


def test_an_index_out_of_range() -> None:
    f = weft.compile(lambda a, i: a[i])
    warm(f, ints(4), ints(2))
    with pytest.raises(IndexError):
        f(ints(4), ints(2) + 3)
    assert f(ints(4), ints(2) + 2).tolist() == [2, 3]


def test_methods_and_reset() -> None:
    class Scale:
        def __init__(self, by: int) -> None:
            self.by = by

        @weft.compile
        def scale(self, a: torch.Tensor) -> torch.Tensor:
            return a * self.by

    two, five = Scale(2), Scale(5)
    for _ in range(3):
        assert two.scale(ints(2)).tolist() == [0, 2]
        assert five.scale(ints(2)).tolist() == [0, 5]
    torch._dynamo.reset()
    assert two.scale(ints(2)).tolist() == [0, 2]


# --- plans ----------------------------------------------------------------------------------------


def many(*args: Any) -> Any:
    return program(args[1], args[0].x["k"])  # noqa: F821  # pyright: ignore


def first(*args: Any) -> Any:
    out = program(args[0])  # noqa: F821  # pyright: ignore
    return [out[0]][0] if False else out  # a branch


def pair(*args: Any) -> Any:
    out = program(args[0])  # noqa: F821  # pyright: ignore
    return out[0], out[1]


def swapped(*args: Any) -> Any:
    out = program(args[0])  # noqa: F821  # pyright: ignore
    return out[1], out[0]


def writes(*args: Any) -> Any:
    out = program(args[0])  # noqa: F821  # pyright: ignore
    args[0].x = out[0]
    return out[0]


def twice(*args: Any) -> Any:
    return program(program(args[0]))  # noqa: F821  # pyright: ignore


def calls(*args: Any) -> Any:
    return program(args[0].read())[0]  # noqa: F821  # pyright: ignore


def one(*args: Any) -> Any:
    return program(args[0])[1]  # noqa: F821  # pyright: ignore


def nothing(*args: Any) -> Any:
    program(args[0])  # noqa: F821  # pyright: ignore


def test_plans_of_code() -> None:
    found = plan_of(one.__code__, "program", {})
    assert found is not None and found.result == 1 and found.inputs == (3,)
    found = plan_of(pair.__code__, "program", {})
    assert found is not None and (found.result, found.count) == (ALL_RESULTS, 2)
    found = plan_of(nothing.__code__, "program", {})
    assert found is not None and found.keys == (None,)
    for other in (many, first, swapped, writes, twice, calls):
        assert plan_of(other.__code__, "program", {}) is None
