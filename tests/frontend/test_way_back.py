"""Programs that were once refused or wrong: each gives what eager gives, through both entries.

What weft has no code for runs in eager, as small a part as can be, and the reason says what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

import weft
from tests.frontend.entries import Entry, assert_as_eager, assert_same

R = torch.randn
# of torch, about quantized tensors and flex_attention outside torch.compile
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


@dataclass(frozen=True)
class Case:
    """`make` gives the program and the arguments of each call; `why`, what runs in eager."""

    make: Callable[[], tuple[Any, list[tuple[Any, ...]]]]
    why: str | None = None  # None: nothing does


def g(*shape: int) -> torch.Tensor:
    return R(*shape).requires_grad_()


def calls(fn: Any, *arguments: Callable[[], tuple[Any, ...]]) -> Callable[[], Any]:
    return lambda: (fn, [make() for make in arguments])


def conditional(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x * 2,)) + 1


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    return flex_attention(q * 2, k, v, score_mod=lambda score, b, h, i, j: score + i - j)


def foreach(a: torch.Tensor, b: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    torch._foreach_mul_([a, b], 2.0)
    torch._foreach_addcdiv_([a, b], [b, a], [a, b], [1.0, 2.0])
    torch._foreach_add_([a, b], [b, a])  # the second reads what the first wrote
    torch._foreach_add_([n], 1)
    return a + b


@torch.library.custom_op("weft_tests::scale_", mutates_args=("x",))
def scale_(x: torch.Tensor, by: float) -> None:
    x.mul_(by)


def custom(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    scale_(y, 2.0)
    scale_(x, 3.0)
    return y * 2 + x


def drawn(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x * 2 + torch.rand(3, generator=generator)


def unfolded(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.unfold(0, 2, 2).mul_(3)
    x.unfold(0, 2, 2).add_(y.reshape(3, 2))
    return x + 1


def strided(x: torch.Tensor) -> Any:
    x.t()[1:].as_strided((2, 2), (1, 2), 1).mul_(2)
    return (x * 3)[1:].as_strided((2, 2), (1, 4), 1), x[1:].as_strided((2, 2), (1, 2), 1) + 1


def bits(x: torch.Tensor) -> Any:
    return (x * 2).view(torch.int32), (x * 3).view(torch.uint8)


def normalised(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, train: bool) -> torch.Tensor:
    return F.batch_norm(x, torch.zeros(3), torch.ones(3), w, b, train)


def quantized(x: torch.Tensor) -> Any:
    q = torch.quantize_per_tensor(x * 2, 0.1, 3, torch.quint8)
    return q, q.dequantize() + 1


def divided(x: torch.Tensor) -> Any:
    return x + torch.div(7, 2), torch.div(7, 2, rounding_mode="floor"), torch.div(x, 2)


def solved(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.inv(x @ x.t() + torch.eye(3)) @ x


def powers(x: torch.Tensor, y: torch.Tensor) -> Any:
    return 2**y, x**9, x**y, (x.short() ** 11, x.to(torch.uint8) ** y.to(torch.uint8))


def eighths(name: str) -> Callable[[torch.Tensor], Any]:
    dtype = getattr(torch, name)
    return lambda x: ((x * 2).to(dtype), (x * 3).to(dtype).float() + 1)


CASES: dict[str, Case] = {
    "powers of integers": Case(calls(powers, lambda: (torch.arange(-4, 4), torch.arange(8)))),
    "lstm": Case(lambda: (nn.LSTM(6, 3), [(R(5, 2, 6),)])),
    "a float that changes": Case(
        calls(lambda x, s: x * s + 1, *(lambda s=s: (R(3), s) for s in (1.5, 2.5, 3.5)))
    ),
    "cond": Case(calls(conditional, lambda: (torch.ones(3),), lambda: (-torch.ones(3),)), "cond"),
    "flex_attention": Case(
        calls(attention, lambda: (R(1, 2, 16, 8), R(1, 2, 16, 8), R(1, 2, 16, 8)))
    ),
    "foreach in place": Case(calls(foreach, lambda: (R(3), R(3), torch.arange(2)))),
    "quantize_per_tensor": Case(calls(quantized, lambda: (R(3, 4),)), "quint8"),
    "a custom op that writes": Case(calls(custom, lambda: (R(3),)), "scale_"),
    "float8": Case(calls(eighths("float8_e4m3fn"), lambda: (R(3),))),
    "float8 without code": Case(
        calls(eighths("float8_e4m3fnuz"), lambda: (R(3),)), "float8_e4m3fnuz"
    ),
    "to_sparse": Case(calls(lambda x: (x * 2).to_sparse(), lambda: (R(3, 4),)), "sparse"),
    "a sparse product": Case(
        calls(lambda x, y: torch.sparse.mm((x * 2).to_sparse(), y) + 1, lambda: (R(3, 4), R(4, 2))),
        "sparse",
    ),
    "as_strided": Case(calls(strided, lambda: (R(4, 4),))),
    "view_as_complex": Case(calls(lambda x: torch.view_as_complex(x * 2), lambda: (R(3, 2),))),
    "view_as_complex, gradients": Case(
        calls(lambda x: torch.view_as_complex(x * 2), lambda: (g(3, 2),))
    ),
    "fft, gradients": Case(calls(lambda x: torch.fft.rfft(x * 2), lambda: (g(8),))),
    "fft of two numbers, gradients": Case(calls(torch.fft.hfft, lambda: (g(2),)), "lazy"),
    "bits of results": Case(calls(bits, lambda: (R(4),))),
    "bits of an input": Case(
        calls(lambda x: (x.view(torch.int32), x + 1), lambda: (R(4),)), "another dtype"
    ),
    "bits written": Case(calls(lambda x: (x.view(torch.int32).add_(1), x * 2)[1], lambda: (R(4),))),
    "batch norm, gradients": Case(
        calls(
            normalised,
            lambda: (g(4, 3, 2), g(3), g(3), True),
            lambda: (g(4, 3, 2), g(3), g(3), False),
        )
    ),
    "linalg, gradients": Case(calls(solved, lambda: (g(3, 3),)), "with_effects"),
    "unfold in place": Case(calls(unfolded, lambda: (R(6),)), "aten.unfold"),
    "nonzero": Case(
        calls(
            lambda x: (x * 2).nonzero() + 1,
            lambda: (torch.tensor([0.0, 1, 2, 0]),),
            lambda: (torch.tensor([0.0, 0, 2, 0]),),
        ),
        "Dynamic shape",
    ),
    "item": Case(
        calls(lambda x: x * x.sum().item() + 1, lambda: (R(3),), lambda: (R(3),)), "item()"
    ),
    "div of two numbers": Case(calls(divided, lambda: (R(3),))),
    "pooling to size 0": Case(
        calls(lambda x: F.adaptive_avg_pool2d(x * 2, (0, 2)) + 1, lambda: (R(1, 2, 4, 4),)),
        "modulo",
    ),
    "index_add": Case(
        calls(
            lambda x, y: x.index_add(0, torch.tensor([1]), y),
            lambda: (R(3, 2), R(1, 2)),
            lambda: (g(3, 2), g(1, 2)),
        )
    ),
}


def wants_gradients(args: tuple[Any, ...]) -> bool:
    return any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)


@pytest.mark.parametrize("name", CASES)
def test_as_eager(entry: Entry, name: str) -> None:
    fn, arguments = CASES[name].make()
    f = entry(fn)
    for args in arguments * 2:  # the second time without compilation
        with torch.set_grad_enabled(wants_gradients(args)):
            assert_as_eager(f, fn, args)
    if entry is weft.compile:
        why = CASES[name].why
        assert f.reasons == [] if why is None else any(why in reason for reason in f.reasons)


def test_a_quantized_model(entry: Entry) -> None:
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    model = torch.ao.quantization.quantize_dynamic(plain)
    with torch.no_grad():
        for _ in range(2):
            assert_as_eager(entry(model), model, (R(3, 4),))


def test_a_generator(entry: Entry) -> None:
    f, x = entry(drawn), R(3)
    ours, eager = (torch.Generator().manual_seed(3) for _ in range(2))
    for _ in range(3):
        assert_same(f(x, ours), drawn(x, eager))


def test_a_float_attribute_that_changes(entry: Entry) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() * self.scale

    m = Scaled()
    f, x = entry(m), R(3)
    for scale in (1.0, 2.5, 3.5, 1.0):
        m.scale = scale
        assert_same(f(x), x.sin() * scale)


def test_a_compiled_step_of_adamw(entry: Entry) -> None:
    ours, eager = (nn.Parameter(torch.arange(4.0)) for _ in range(2))
    steps: list[Any] = []
    for p in (ours, eager):
        optimizer = torch.optim.AdamW([p], lr=0.1, foreach=True)
        p.grad = torch.ones(4)
        steps.append(optimizer.step)
    step = entry(steps[0])
    for _ in range(3):
        step()
        steps[1]()
        assert_same(ours, eager)


def strided_in_place(x: torch.Tensor) -> torch.Tensor:
    return (x * 2)[1:].as_strided_((4,), (1,), 6) + 1


def filled_where_expanded(x: torch.Tensor) -> torch.Tensor:
    y = (x * 1).expand(2, *x.shape)
    y.select(0, 0).mul_(2)
    y.index_fill_(0, torch.tensor([0]), 2.0)
    return y + 1


STORAGE = {
    "as_strided": lambda x: (x * 2)[1:].as_strided((4,), (1,)) + 1,
    "as_strided of a chunk": lambda x: x.chunk(2, 0)[-1].as_strided((4,), (1,)) + 1,
    "as_strided with an offset": lambda x: torch.as_strided((x * 2)[1:], (4,), (1,), 2) + 1,
    "as_strided_copy": lambda x: torch.as_strided_copy((x * 2)[1:], (4,), (1,)) + 1,
    "as_strided_scatter": lambda x: torch.as_strided_scatter(
        (x * 2)[1:], torch.ones(4), (4,), (1,), 4
    ),
    "as_strided_": strided_in_place,
    "a write to what is expanded": filled_where_expanded,
}


@pytest.mark.filterwarnings("ignore:Use of index_fill_")
@pytest.mark.parametrize("name", STORAGE)
def test_what_views_keep_of_their_storage(entry: Entry, name: str) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    torch.testing.assert_close(entry(STORAGE[name])(x.clone()), STORAGE[name](x.clone()))


@pytest.mark.parametrize("lazy", [torch.conj, lambda z: z.conj().imag])
def test_results_are_as_lazy_as_eager(entry: Entry, lazy: Callable[[Any], Any]) -> None:
    """view_as_real refuses what has a lazy conjugate."""
    z = torch.randn(3, dtype=torch.complex64)
    ours, eager = entry(lambda z: lazy(z * 2))(z), lazy(z * 2)
    assert (ours.is_conj(), ours.is_neg()) == (eager.is_conj(), eager.is_neg())
    torch.testing.assert_close(ours, eager)
