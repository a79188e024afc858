"""Small programs, each for one thing a front end can get wrong, with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from weft.driver import Builder
from weft.frontend.graph import Captured, Runner
from weft.frontend.specialise import Session
from weft.frontend.torch_level import TORCH_DTYPE
from weft.interpret.calls import evaluate
from weft.options import Options


class Interpreter:
    """The back end of these tests: runs the torch level through torch."""

    def __init__(self) -> None:
        self.captured: list[Captured] = []

    def session(self, title: str = "graph") -> Session:
        return Session(self, debug=True, title=title, fused_random=False)

    def ir(self, programs: Sequence[Runner], level: str) -> str:
        return ""

    def report(self, programs: Sequence[Runner], reasons: Sequence[str]) -> Any:
        return None

    def __call__(self, captured: Captured) -> Runner:
        self.captured.append(captured)

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            with torch.no_grad():
                # Every result is copied before an input is written: it may be a view of one.
                values = evaluate(captured.graph, tensors)
                fresh = [
                    torch.empty_strided(t.shape, t.layout, dtype=TORCH_DTYPE[t.dtype]).copy_(v)
                    for v, t in zip(values, captured.layouts, strict=True)
                ]
                results = fresh[: len(fresh) - len(captured.mutations)]
                for placeholder, new in zip(captured.mutations, fresh[len(results) :], strict=True):
                    tensors[placeholder].copy_(new)
            return results

        return run


interpret = Interpreter()
native = Builder(Options())  # compiled as by weft.compile


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]


CASES: list[Case] = []


def case(make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    CASES.append(Case(make.__name__, make))


def x23() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


@case
def write_and_return_nothing():
    def f(x):
        x.mul_(2)

    return f, (x23(),)


@case
def write_through_a_view():
    def f(x):
        x[0].add_(1)
        x[:, 1:].mul_(3)
        x.t()[2].fill_(7)
        return x.sum()

    return f, (x23(),)


@case
def write_through_every_view():
    def f(x):
        y = x.clone()
        y.view(3, 2)[1] = 5
        y.unsqueeze(0).squeeze(0).add_(1)
        y.diagonal().zero_()
        y.permute(1, 0).transpose(0, 1).mul_(2)
        y.unbind(1)[2].add_(10)
        y.split(2, dim=1)[0].sub_(1)
        y.flatten()[::2].neg_()
        y.as_strided((2,), (3,), 1).add_(100)
        return y, x

    return f, (x23(),)


@case
def read_a_view_after_a_write():
    def f(x):
        y = x + 1
        v = y[0]
        y.mul_(10)
        w = v + 1
        v.zero_()
        return w, y

    return f, (x23(),)


@case
def out_argument():
    def f(x, y):
        torch.mul(x, 2, out=y)
        return y + 1

    return f, (x23(), torch.zeros(2, 3))


@case
def copy_into_an_input():
    def f(cache, row, at):
        cache.index_copy_(0, at, row)
        return cache[:2].sum(1)

    return f, (torch.zeros(4, 3), torch.ones(1, 3), torch.tensor([1]))


@case
def reshape_in_place():
    def f(x):
        y = x * 2
        y.unsqueeze_(0)
        y.add_(1)
        return y.transpose_(1, 2)

    return f, (x23(),)


@case
def the_same_tensor_twice():
    x = x23()
    return (lambda a, b: a * b), (x, x)


@case
def the_same_tensor_twice_and_written():
    def f(a, b):
        a.add_(1)
        return a * b

    x = x23()
    return f, (x, x)


@case
def overlapping_inputs_and_written():
    def f(a, b):
        a.add_(1)
        b.mul_(2)
        return a.sum(), b

    x = torch.arange(10.0)
    return f, (x[:6].view(2, 3), x[4:9])


@case
def returns_views_of_a_result():
    def f(x):
        y = x * 2
        return y, y.t(), y[0], y

    return f, (x23(),)


@case
def constants_and_containers():
    def f(x, scale, flags):
        return {"a": x * scale, "b": [None, 3, "s", flags["on"]], "c": (x.shape[0], torch.float16)}

    return f, (x23(), 2.5, {"on": True, "t": torch.ones(1)})


@case
def a_tensor_of_the_closure():
    scale = torch.tensor([1.0, 2.0, 3.0])
    return (lambda x: (x * scale, scale)), (x23(),)


@case
def attention():
    f = nn.functional.scaled_dot_product_attention
    q = torch.randn(1, 2, 5, 8)
    return (lambda q, k, v: f(q, k, v, is_causal=True)), (q, q + 1, q - 1)


@case
def a_buffer_assigned():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            self.mean = self.mean * 0.5 + x.mean(0)
            return x - self.mean

    return Counter(), (x23(),)


@case
def data_dependent_branch():
    def f(x):
        return x * 2 if x.sum() > 0 else x - 1

    return f, (x23(),)


@case
def inner_gradient():
    def f(x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            return torch.autograd.grad((y**3).sum(), y)[0]

    return f, (x23(),)


@case
def autocast():
    def f(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return nn.functional.linear(x, w)

    return f, (torch.randn(2, 3), torch.randn(4, 3))


@case
def mapped():
    return (lambda x: torch.vmap(lambda r: nn.functional.linear(r, x[:, :2].t()))(x)), (
        torch.randn(2, 2),
    )


ROWS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "pointwise": lambda: ((lambda x, y: torch.relu(x + y) * 2), (x23(), torch.ones(3))),
    "write_an_input": lambda: ((lambda x: x.add_(1)), (x23(),)),
    "write_with_a_cast": lambda: ((lambda x, y: x.add_(y)), (x23().half(), torch.ones(2, 3))),
    "strided_inputs": lambda: (
        (lambda x, y: x + y),
        (torch.randn(3, 4).t(), torch.randn(8, 6)[::2, ::2]),
    ),
    "an_expanded_input": lambda: ((lambda x: x * 2), (torch.randn(1, 3).expand(4, 3),)),
    "returns_the_input": lambda: ((lambda x: x), (x23(),)),
    "returns_views_of_the_input": lambda: (
        (lambda x: (x[1], x.t(), x[:, 1:], x.view(-1))),
        (torch.arange(20.0)[2:8].view(2, 3),),
    ),
    "returns_an_expanded_result": lambda: (
        (lambda x: x.sum(1, keepdim=True).expand(2, 5)),
        (x23(),),
    ),
    "returns_a_chunk": lambda: ((lambda x: (x + 1).chunk(3, dim=1)[1]), (torch.randn(2, 6),)),
    "fresh_constants": lambda: (
        (lambda x: (torch.tensor([1.0, 2.0]), x + torch.tensor(3.0), torch.arange(4))),
        (x23(),),
    ),
    "number_of_a_literal": lambda: ((lambda x: x * torch.tensor(3).item()), (x23(),)),
    "batch_norm_in_training": lambda: (nn.BatchNorm2d(3), (torch.randn(2, 3, 4, 4),)),
    "batch_norm_in_evaluation": lambda: (nn.BatchNorm2d(3).eval(), (torch.randn(2, 3, 4, 4),)),
    "group_norm_and_convolution": lambda: (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU()),
        (torch.randn(2, 3, 8, 8),),
    ),
    "encoder_layer": lambda: (
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(),
        (torch.randn(2, 5, 16),),
    ),
    "through_data": lambda: ((lambda x: x.data * 2 + x), (x23(),)),
    "complex_numbers": lambda: (
        (lambda x: torch.view_as_real(torch.view_as_complex(x) * 1j)),
        (torch.randn(3, 2),),
    ),
    "recurrent": lambda: (nn.LSTM(4, 5, batch_first=True), (torch.randn(2, 3, 4),)),
}
CASES += [Case(name, make) for name, make in ROWS.items()]
