"""Transforms of a compiled function, copies of it, and a compiled module's own names."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import weft
from tests.frontend.entries import Entry, assert_same


def program(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x).sum()


TRANSFORMS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "vmap": lambda f, x: torch.vmap(f)(torch.stack([x, x + 1])),
    "grad": lambda f, x: torch.func.grad(f)(x),
    "vjp": lambda f, x: torch.func.vjp(f, x)[1](torch.tensor(2.0)),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x * 2,)),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x: torch.func.hessian(f)(x),
}


@pytest.mark.parametrize("called", [True, False], ids=["called before", "not called"])
def test_transforms_of_a_compiled_function(entry: Entry, called: bool) -> None:
    f, x = entry(program), torch.randn(3)
    if called:
        f(x)
    for transform in TRANSFORMS.values():
        assert_same(transform(f, x), transform(program, x))
        assert_same(f(x), program(x))


@pytest.mark.parametrize("name", ["vmap", "grad", "jacrev"])
def test_transforms_inside(entry: Entry, name: str) -> None:
    def whole(x: torch.Tensor) -> torch.Tensor:
        return TRANSFORMS[name](program, x) * 2 + 1

    f, x = entry(whole), torch.randn(3)
    for _ in range(2):
        assert_same(f(x), whole(x))
    assert entry is not weft.compile or f.reasons == []


class Slotted:
    __slots__ = ("by",)

    def __init__(self, by: float) -> None:
        self.by = by

    @weft.compile
    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


class Plain:
    def __init__(self, by: float) -> None:
        self.by = by

    @weft.compile
    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


@weft.compile
def decorated(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def pickled(obj: Any) -> Any:
    return pickle.loads(pickle.dumps(obj))


def saved(obj: Any) -> Any:
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", [Slotted, Plain])
def test_copies_of_an_object_with_a_compiled_method(kind: Any, again: Any) -> None:
    first, x = kind(2.0), torch.randn(3)
    first.scaled(x)  # as it is after a call
    second = again(first)
    second.by = 5.0
    assert_same(second.scaled(x), x * 5)
    assert_same(first.scaled(x), x * 2)


@pytest.mark.parametrize("again", [copy.deepcopy, pickled, saved], ids=lambda f: f.__name__)
def test_copies_of_a_compiled_module(entry: Entry, again: Any) -> None:
    if entry is not weft.compile and again is not copy.deepcopy:
        pytest.skip("torch's own wrapper")
    m, x = nn.Sequential(nn.Linear(3, 3)), torch.randn(2, 3)
    f = entry(m)
    f(x)
    second = again(f)
    assert_same(second(x), m(x))
    with torch.no_grad():
        for p in second.parameters():
            p.add_(1)
    assert not torch.allclose(second(x), m(x))
    assert_same(f(x), m(x))


def test_copies_of_a_compiled_function() -> None:
    x = torch.randn(3)
    decorated(x)
    assert pickled(decorated) is decorated and copy.deepcopy(decorated) is decorated
    f = weft.compile(program)
    f(x)
    assert_same(pickled(f)(x), program(x))


class Named(nn.Module):
    """Has every name that a compiled callable has beside those of its module."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.report, self.ir, self.programs, self.reasons = "text", 3.0, [1], {}

    def prepare(self, x: torch.Tensor) -> str:
        return "its own"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.ir


def test_a_module_keeps_its_names(entry: Entry) -> None:
    m, x = Named(), torch.randn(3)
    f = entry(m)
    assert_same(f(x), m(x))
    assert (f.report, f.ir, f.programs, f.reasons) == ("text", 3.0, [1], {})
    assert f.prepare(x) == "its own"
    if entry is weft.compile:
        assert weft.report(f).kernels and "program loop" in weft.ir(f, "loop")


def test_special_methods_of_a_module() -> None:
    m, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(3)
    f = weft.compile(m)
    f(x)
    assert len(f) == 2 and f[0] is m[0] and [*f] == [*m]
    f[1] = nn.Tanh()
    assert_same(f(x), m(x))
    table = weft.compile(nn.ModuleDict({"a": nn.Linear(3, 3)}))
    assert "a" in table and [*table] == ["a"]


@pytest.mark.parametrize("n", [8, 1 << 21], ids=["small", "8 MiB"])
def test_results_may_be_resized(entry: Entry, n: int) -> None:
    f, x = entry(lambda x: x * 2), torch.ones(n)
    y = f(x)
    y.resize_(2 * n)
    assert y.numel() == 2 * n and torch.equal(y[:n], x * 2)
    y = f(x)
    y.untyped_storage().resize_(0)
    y.untyped_storage().resize_(4 * n)
    y.fill_(1)
    assert_same(f(x), x * 2)
