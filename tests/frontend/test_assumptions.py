"""What a compiled program takes for granted, changed between two calls: it gives what eager gives.

Every kind of state is changed that a call can depend on, through both entries.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

import weft
from weft.frontend.assumptions import ANY, Assumptions

GLOBAL = {"scale": 2.0}
FLAG = True


class Scaled(nn.Module):
    """Depends on attributes of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.drop = nn.Dropout(0.0)
        self.act: Any = torch.relu
        self.listed = [nn.Linear(4, 4)]
        self.table = {"a": torch.ones(4), "deep": [1.0, {"b": 2.0}]}
        self.tensor = torch.full((4,), 3.0)
        self.register_buffer("buffer", torch.full((4,), 0.5))
        self.scale, self.flag = 2.0, True
        self.options = SimpleNamespace(power=2)

    def forward(self, x: torch.Tensor, shift: float = 1.0) -> torch.Tensor:
        y = self.act(self.drop(self.norm(self.linear(x)))) * self.scale + shift
        if self.flag:
            y = y + self.listed[0](x) * self.table["deep"][1]["b"]
        return y * self.tensor + self.table["a"] + self.buffer + y**self.options.power


def hook(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
    return out * 3


def hooked(m: Scaled) -> Any:
    m.linear.register_forward_hook(hook)


def deep(m: Scaled) -> Any:
    m.table["deep"][1]["b"] = 5.0


def default(m: Scaled) -> Any:
    Scaled.forward.__defaults__ = (7.0,)


def listed(m: Scaled) -> Any:
    m.listed[0] = nn.Linear(4, 4)


def own_forward(m: Scaled) -> Any:
    m.forward = lambda x: x * 11  # type: ignore[method-assign]


def subclass(m: Scaled) -> Any:
    class Louder(Scaled):
        def forward(self, x: torch.Tensor, shift: float = 1.0) -> torch.Tensor:
            return super().forward(x, shift) * 13

    m.__class__ = Louder


CHANGES: dict[str, Callable[[Scaled], Any]] = {
    "attribute": lambda m: setattr(m, "scale", 3.0),
    "flag": lambda m: setattr(m, "flag", False),
    "attribute of a namespace": lambda m: setattr(m.options, "power", 3),
    "nested list": deep,
    "default of forward": default,
    "tensor attribute": lambda m: setattr(m, "tensor", torch.ones(4)),
    "tensor attribute in place": lambda m: m.tensor.mul_(2),
    "tensor in a dict": lambda m: m.table.update(a=torch.zeros(4)),
    "module in a list": listed,
    "function attribute": lambda m: setattr(m, "act", torch.tanh),
    "eps of a norm": lambda m: setattr(m.norm, "eps", 0.5),
    "a module": lambda m: setattr(m, "linear", nn.Linear(4, 4)),
    "a module of another kind": lambda m: setattr(m, "linear", nn.Identity()),
    "a parameter": lambda m: setattr(m.linear, "weight", nn.Parameter(torch.ones(4, 4))),
    "a parameter set to None": lambda m: setattr(m.linear, "bias", None),
    "a parameter in place": lambda m: m.linear.weight.data.mul_(2),
    "one element through .data": lambda m: m.linear.weight.data[1].fill_(9),
    "another storage": lambda m: setattr(m.linear.weight, "data", torch.ones(4, 4)),
    "transposed storage": lambda m: setattr(m.linear.weight, "data", m.linear.weight.data.t()),
    "through NumPy": lambda m: m.linear.weight.detach().numpy().__setitem__(0, 5.0),
    "a buffer": lambda m: m.buffer.add_(1),
    "another buffer": lambda m: setattr(m, "buffer", torch.zeros(4)),
    "tied parameters": lambda m: setattr(m.listed[0], "weight", m.linear.weight),
    "state dict": lambda m: m.load_state_dict(Scaled().state_dict()),
    "a hook": hooked,
    "forward": own_forward,
    "class": subclass,
    "double": lambda m: [module.double() for module in (m, m.listed[0])],
    "dtype and back": lambda m: m.half().float(),
    "requires_grad": lambda m: m.requires_grad_(False),
    "eval": lambda m: m.eval(),
    "a child set to eval": lambda m: m.drop.eval(),
}


def restore() -> None:
    Scaled.forward.__defaults__ = (1.0,)


@pytest.fixture(params=["weft.compile", "torch.compile"])
def entry(request: pytest.FixtureRequest) -> Any:
    torch.compiler.reset()
    yield weft.compile if request.param == "weft.compile" else torch_entry
    restore()


def torch_entry(fn: Any) -> Any:
    return torch.compile(fn, backend="weft")


def same(ours: Any, eager: Any) -> None:
    torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)
    assert ours.requires_grad == eager.requires_grad and ours.stride() == eager.stride()


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("change", CHANGES)
def test_state_of_a_module(entry: Any, change: str, grad: bool) -> None:
    torch.manual_seed(0)
    m = Scaled()
    f = entry(m)
    x = torch.randn(3, 4)
    with torch.set_grad_enabled(grad):
        for _ in range(3):
            same(f(x), m(x))
        CHANGES[change](m)
        x = x.to(next(m.parameters()).dtype)
        for _ in range(2):
            same(f(x), m(x))


def test_a_hook_is_removed(entry: Any) -> None:
    m, x = Scaled(), torch.randn(3, 4)
    handle = m.linear.register_forward_hook(hook)
    f = entry(m)
    same(f(x), m(x))
    handle.remove()
    same(f(x), m(x))


def test_hooks_run_at_every_call(entry: Any) -> None:
    m, x, seen = nn.Linear(4, 4), torch.randn(3, 4), []
    m.register_forward_hook(lambda module, args, out: seen.append(out))
    f = entry(m)
    for _ in range(3):
        f(x)
    assert [type(t) for t in seen] == [torch.Tensor] * 3


def test_a_module_behind_a_bound_method(entry: Any) -> None:
    class Runner:
        def __init__(self) -> None:
            self.model: Any = nn.Sequential(nn.Linear(64, 64), nn.ReLU())

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x)

    r, x = Runner(), torch.randn(3, 64)
    f = entry(r.__call__)
    with torch.no_grad():
        same(f(x), r(x))
        r.model.double()
        same(f(x.double()), r(x.double()))
        with pytest.raises(RuntimeError):
            f(x)
        r.model.float()
        r.model[0] = nn.Linear(64, 32)
        same(f(x), r(x))
        r.model.append(nn.Dropout(0.5))
        r.model.eval()
        same(f(x), r(x))


def test_globals_closures_and_defaults(entry: Any) -> None:
    held = {"factor": 2.0}
    tensor = torch.ones(3)

    def program(x: torch.Tensor, pieces: Any = [1.0]) -> torch.Tensor:  # noqa: B006
        y = x * held["factor"] * GLOBAL["scale"] + pieces[0] + tensor
        return y + 1 if FLAG else y

    f, x = entry(program), torch.randn(3)
    same(f(x), program(x))
    held["factor"] = 3.0
    same(f(x), program(x))
    GLOBAL["scale"] = 5.0
    same(f(x), program(x))
    program.__defaults__[0][0] = 4.0  # type: ignore[index]
    same(f(x), program(x))
    globals()["FLAG"] = False
    same(f(x), program(x))
    tensor.add_(1)
    same(f(x), program(x))
    tensor = torch.full((3,), 9.0)
    same(f(x), program(x))
    GLOBAL["scale"], globals()["FLAG"] = 2.0, True


def test_the_environment(entry: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if os.environ.get("WEFT_TEST_SWITCH") else x * 3

    f, x = entry(program), torch.randn(3)
    same(f(x), program(x))
    os.environ["WEFT_TEST_SWITCH"] = "1"
    try:
        same(f(x), program(x))
    finally:
        del os.environ["WEFT_TEST_SWITCH"]


def test_modes(entry: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2 if torch.is_grad_enabled() else x * 3
        return y + torch.ones(3) @ torch.ones(3) + torch.zeros(3, dtype=torch.get_default_dtype())

    f, x = entry(program), torch.randn(3)
    same(f(x), program(x))
    with torch.no_grad():
        same(f(x), program(x))
    with torch.inference_mode():
        same(f(x), program(x))
    torch.set_default_dtype(torch.float64)
    try:
        assert f(x).dtype == program(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    same(f(x), program(x))


def test_autocast(entry: Any) -> None:
    m, x = nn.Linear(8, 8), torch.randn(2, 8)
    f = entry(m)
    with torch.no_grad():
        same(f(x), m(x))
        with torch.autocast("cpu", torch.bfloat16):
            assert f(x).dtype == torch.bfloat16
            torch.testing.assert_close(f(x), m(x), rtol=2e-2, atol=2e-2)
        same(f(x), m(x))


INPUTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "shape": lambda x: torch.randn(5, 3),
    "strides": lambda x: torch.randn(3, 4).t(),
    "dtype": lambda x: x.double(),
    "integers": lambda x: torch.arange(12).reshape(4, 3),
    "requires_grad": lambda x: x.clone().requires_grad_(),
    "parameter": lambda x: nn.Parameter(x),
    "expanded": lambda x: torch.randn(1, 3).expand(4, 3),
    "offset": lambda x: torch.randn(13)[1:].reshape(4, 3),
    "negated": lambda x: torch.randn(4, 3, dtype=torch.complex64).conj().imag,
    "conjugated": lambda x: torch.randn(4, 3, dtype=torch.complex64).conj(),
    "number": lambda x: 2.5,
    "sparse": lambda x: x.to_sparse(),
}


@pytest.mark.parametrize("change", INPUTS)
def test_inputs(entry: Any, change: str) -> None:
    def program(x: Any) -> Any:
        return x * 2 + 1 if not getattr(x, "is_sparse", False) else x * 2

    torch.manual_seed(0)
    f, x = entry(program), torch.randn(4, 3)
    for given in (x, INPUTS[change](x), x, INPUTS[change](x)):
        ours, eager = f(given), program(given)
        assert type(ours) is type(eager)
        if isinstance(eager, torch.Tensor):
            torch.testing.assert_close(ours, eager)
            assert ours.requires_grad == eager.requires_grad
            assert ours.layout == eager.layout
        else:
            assert ours == eager


def test_identity_of_inputs(entry: Any) -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return a + b if a is not b else a * 10

    f, x = entry(program), torch.zeros(3)
    for args in ((x.clone(), x.clone()), (x, x), (x.clone(), x.clone())):
        ours = tree_map_only(torch.Tensor, torch.clone, args) if args[0] is not args[1] else None
        first = x.clone()
        ours = ours or (first, first)
        other = copy.deepcopy(ours)
        same(f(*ours), program(*other))
        same(ours[0], other[0])


def test_a_written_input_that_is_a_tensor_of_the_closure(entry: Any) -> None:
    buffer = torch.ones(3)
    m = nn.Linear(3, 1, bias=False)

    def program(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * buffer + m.weight

    f = entry(program)
    with torch.no_grad():
        for make in (lambda: torch.ones(3), lambda: buffer, lambda: m.weight.data):
            before = buffer.clone(), m.weight.detach().clone()
            want = program(make())
            buffer.copy_(before[0])
            m.weight.copy_(before[1])
            same(f(make()), want)
            buffer.copy_(before[0])
            m.weight.copy_(before[1])


def test_tangents(entry: Any) -> None:
    f, x = entry(lambda x: x.sin() * 2), torch.randn(3)
    f(x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones(3))
        tangent = torch.autograd.forward_ad.unpack_dual(f(dual)).tangent
    torch.testing.assert_close(tangent, x.cos() * 2)


def test_a_float_beside_a_size_that_is_left_open() -> None:
    x = torch.randn(3)
    told = Assumptions.of((x, 0.5))
    (kind, _, *facts), number = told.inputs
    open_size = replace(told, inputs=((kind, (ANY,), *facts), number))
    check = open_size.check((x, 0.5))
    assert check(torch.randn(7), 0.5)
    assert not check(x, 0.25) and not check(x) and not check(x.double(), 0.5)
