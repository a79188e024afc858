"""Programs that write their inputs: kernels store there where that is safe, and only there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import weft
from weft import driver
from weft.core.errors import WeftError
from weft.link import cpu

Program = Callable[..., Any]


def adam(p: Any, m: Any, v: Any, g: Any) -> None:
    m.lerp_(g, 0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.addcdiv_(m, v.sqrt() + 1e-8, value=-0.1)


def counted(x: Any, y: Any, *_: Any) -> None:
    x[:1, 0].add_(1)
    y.mul_(x[:1, 0])


def replaced(x: Any, y: Any, *_: Any) -> Any:
    old = x * y
    x.copy_(y + 1)
    return old


def swapped(x: Any, y: Any, *_: Any) -> None:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


def later(x: Any, y: Any, *_: Any) -> Any:
    before = x * 2
    x.add_(y)
    return before, x.sum(), before + x


def shifted(x: Any, *_: Any) -> None:
    x[1:].copy_(x[:-1].clone())


def read_elsewhere(x: Any, y: Any, *_: Any) -> None:
    y.copy_(x + x.flip(0))
    x.mul_(y.flip(1))


def normalised(x: Any, *_: Any) -> Any:
    x.sub_(x.mean(1, keepdim=True)).div_(x.std(1, keepdim=True) + 1)
    return x


def returned(x: Any, y: Any, *_: Any) -> Any:
    x.add_(y)
    return x.clone(), x


# how many results are stored in place, of how many that are stored
PROGRAMS: dict[str, tuple[Program, tuple[int, int] | None]] = {
    "adam": (adam, (3, 3)),
    "add": (lambda x, y, *_: x.add_(y), (1, 1)),
    "itself": (lambda x, *_: x.mul_(x).sub_(x), (1, 1)),
    "fill": (lambda x, *_: x.fill_(2.0), (1, 1)),
    "counted": (counted, None),
    "replaced": (replaced, (0, 1)),  # nothing makes a C compiler read first
    "copy": (lambda x, y, *_: x.copy_(y), None),
    "swapped": (swapped, None),
    "later": (later, None),
    "shifted": (shifted, None),
    "flip": (lambda x, *_: x.copy_(x.flip(0)), (0, 1)),
    "transposed": (
        lambda x, *_: x.copy_(x.t().clone() if len(x) == x.shape[1] else -x),
        None,
    ),
    "read elsewhere": (read_elsewhere, None),
    "softmax": (lambda x, *_: x.copy_(x.softmax(1)), None),
    "columns": (lambda x, *_: x.copy_(x.softmax(0)), None),
    "normalised": (normalised, None),
    "running": (lambda x, *_: x.cumsum_(1), None),
    "product": (lambda x, y, *_: x.add_(x @ (y.t() @ x)), None),
    "row of means": (lambda x, y, *_: x[0].copy_((x + y).mean(0)), None),
    "a part": (lambda x, y, *_: x[::2].add_(y[::2]), None),
    "masked": (lambda x, y, *_: x.masked_fill_(x > y, 0.0), (1, 1)),
    "returned": (returned, None),
    "scattered": (lambda x, y, *_: x.index_add_(0, torch.arange(len(x)).flip(0), y), None),
}
SHAPES = [(1, 1), (3, 5), (7, 64), (65, 33), (48, 48), (300, 1001)]


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """For each program that is linked: results that are in place, and all that are stored."""
    found: list[tuple[int, int]] = []
    plain = cpu.in_place

    def seen(emitted: Any, writes: Any) -> Any:
        named = plain(emitted, writes)
        within = {k.name: (1,) * len(k.inputs) or (1,) for k in emitted.program.kernels}
        assert not plain(replace(emitted, starts=within), writes)
        found.append((len(named), len(writes)))
        return named

    monkeypatch.setattr(cpu, "in_place", seen)
    monkeypatch.setattr(driver, "relink", lambda *_: None)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str, dtype: torch.dtype, stored: list[tuple[int, int]]) -> None:
    """Twice in turn, so that what the first call left behind is read by the second."""
    program, expected = PROGRAMS[name]
    whole = dtype is torch.int64
    if whole and name not in ("add", "itself", "fill", "copy", "swapped", "later", "flip"):
        return
    near: dict[str, Any] = {
        "rtol": 5e-2 if dtype.itemsize == 2 else 1e-4,
        "atol": 1e-2,
        "equal_nan": True,
    }
    for shape in SHAPES:
        torch.manual_seed(0)
        given = [torch.randint(1, 9, shape).to(dtype) for _ in range(4)]
        ours = [t.clone() for t in given]
        compiled = weft.compile(program, dynamic=False)
        versions = [t._version for t in ours]
        for _ in range(2):
            want, found = program(*given), compiled(*ours)
            if want is not None:
                torch.testing.assert_close(found, want, **near)
        torch.testing.assert_close(ours, given, **near)
        assert [t._version > v for t, v in zip(ours, versions, strict=True)] == [
            t._version > 0 for t in given
        ]
    if expected is not None and dtype is torch.float32:
        assert stored[-1] == expected


def test_rows_that_are_apart_in_memory() -> None:
    base, want = torch.arange(24.0).reshape(4, 6), torch.arange(24.0).reshape(4, 6)
    weft.compile(lambda x: x.mul_(2))(base[:, ::2])
    want[:, ::2] *= 2
    assert torch.equal(base, want)


def test_inputs_that_share_memory() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    found: list[Any] = []
    for f in (program, weft.compile(program)):
        base = torch.arange(10.0)
        found.append((f(base[:7], base[3:]), base))
    torch.testing.assert_close(*found)


def test_inputs_that_come_to_share_memory() -> None:
    """Where the first one lies as it did, and where both do."""

    def program(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(1)
        y.mul_(2)

    compiled = weft.compile(program, dynamic=False)
    for starts in [(0, 8), (0, 8), (0, 3), (0, 8), (3, 0), (0, 0), (4, 8)]:
        found: list[Any] = []
        for f in (program, compiled):
            base = torch.arange(16.0)
            f(*(base[n : n + 4] for n in starts))
            found.append(base)
        torch.testing.assert_close(*found)


def test_a_counter_is_stored_in_place(stored: list[tuple[int, int]]) -> None:
    def program(step: torch.Tensor, x: torch.Tensor) -> None:
        step.add_(1)
        x.div_(1 - 0.9**step)

    compiled = weft.compile(program, dynamic=False)
    given = [(torch.tensor(1.0), torch.ones(5, 7)) for _ in range(2)]
    for f, own in zip((program, compiled), given, strict=True):
        f(*own)
        f(*own)
    torch.testing.assert_close(*given)
    assert stored == [(2, 2)]


def test_an_error_leaves_inputs_whole() -> None:
    def program(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        x.add_(y[i])
        return x

    compiled = weft.compile(program, fallback="error")
    x, y = torch.zeros(5), torch.ones(3)
    with pytest.raises((WeftError, IndexError)):
        compiled(x, torch.tensor([0, 1, 2, 3, 0]), y)
    assert torch.equal(x, torch.zeros(5)) and torch.equal(y, torch.ones(3))


def test_an_optimiser_by_torch_compile(stored: list[tuple[int, int]]) -> None:
    logging.disable(logging.ERROR)
    torch.compiler.reset()
    nets = [torch.nn.Linear(37, 11), torch.nn.Linear(37, 11)]
    nets[1].load_state_dict(nets[0].state_dict())
    ours, eager = (torch.optim.AdamW(n.parameters(), 0.1) for n in nets)
    update = torch.compile(ours.step, backend="weft", options={"fallback": "error"})
    for _ in range(5):
        for n in nets:
            n.zero_grad()
            n(torch.ones(3, 37)).square().sum().backward()
        update()
        eager.step()
        for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
            torch.testing.assert_close(a, b)
    logging.disable(logging.NOTSET)


def test_profiling_leaves_inputs_as_one_call_does() -> None:
    compiled = weft.compile(lambda x: x.add_(1), profile=True)
    x = torch.zeros(40)
    compiled(x)
    assert torch.equal(x, torch.ones(40))


@pytest.mark.parametrize("over", [True, False])
def test_nothing_streams_over_what_is_read(over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines are in the cache already, where stores elsewhere would have them read first."""
    texts: list[str] = []
    build = cpu.runtime.build

    def seen(spec: Any, sources: dict[str, str], *more: Any, **named: Any) -> Any:
        texts.extend(sources.values())
        return build(spec, sources, *more, **named)

    monkeypatch.setattr(cpu.runtime, "build", seen)
    program: Program = (lambda x: x.mul_(3)) if over else (lambda x: x * 3)
    compiled, x = weft.compile(program, target="cpu:avx2"), torch.ones(8_000_000)
    monkeypatch.setattr(driver.cpu, "relink", lambda *_: None)
    assert torch.equal(compiled(x)[::997], torch.full((8025,), 3.0))
    (text,) = [t for t in texts if " stream_" in t]
    assert text.startswith(cpu.OVER) == over
