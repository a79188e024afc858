"""torch.ctc_loss as recurrences: all its forms, and its edges, by eager in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import weft

T, N, C, S = 9, 4, 6, 3  # rows, sequences, classes, labels at most


def given(form: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits, targets, and lengths of rows and of targets."""
    torch.manual_seed(0)
    x = torch.randn(T, N, C, dtype=dtype)
    labels = torch.randint(1, C, (N, S))
    labels[0, 1] = labels[0, 0]  # a label twice in a row needs a blank between
    inputs, lengths = torch.tensor([T, T - 1, 5, T]), torch.tensor([S, 2, 1, S])
    if form == "none":
        lengths[1] = 0
    if form == "no rows":
        inputs[:2], lengths[0] = 0, 0
    if form == "too few rows":
        inputs[0] = 2
    if form == "concatenated":
        labels = torch.cat([row[:n] for row, n in zip(labels, lengths, strict=True)])
    if form == "all empty":
        labels, lengths = labels.new_empty(0), lengths * 0
    if form == "strided":
        x, labels = torch.randn(C, T, N, dtype=dtype).permute(1, 2, 0), labels.t().contiguous().t()
    return x, labels, inputs, lengths


def both(f: Any, x: Tensor, *rest: Any, **how: Any) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    loss = f(x, *rest, **how)
    (loss * torch.arange(1, loss.numel() + 1, dtype=loss.dtype).view(loss.shape)).sum().backward()
    assert x.grad is not None
    return loss.detach(), x.grad


def loss_of(x: Tensor, *rest: Any, **how: Any) -> Tensor:
    return F.ctc_loss(x.log_softmax(-1), *rest, **how)


def check(*args: Any, **how: Any) -> Any:
    torch._dynamo.reset()
    f = weft.compile(loss_of, fallback="error")
    for found, wanted in zip(both(f, *args, **how), both(loss_of, *args, **how), strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True)
    return f


FORMS = ["padded", "concatenated", "none", "no rows", "too few rows", "all empty", "strided"]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_are_eager_s(form: str, reduction: str) -> None:
    check(*given(form), reduction=reduction, zero_infinity=False)


@pytest.mark.parametrize("form", ["no rows", "too few rows", "concatenated"])
def test_infinite_losses_may_be_zeros(form: str) -> None:
    check(*given(form), zero_infinity=True)


@pytest.mark.parametrize("form", ["padded", "concatenated"])
def test_lengths_may_be_lists(form: str) -> None:
    x, labels, inputs, lengths = given(form)
    check(x, labels, inputs.tolist(), lengths.tolist(), blank=0)
    check(x, labels.int(), inputs.int(), lengths.int())


def test_another_blank_and_one_sequence() -> None:
    x, labels, inputs, lengths = given("padded")
    check(x, labels - 1, inputs, lengths, blank=C - 1)
    check(x[:, 0], labels[0], inputs[:1], lengths[:1], reduction="none")
    check(x[:, 0], labels[0], inputs[0], lengths[0])


def test_single_precision_is_as_near_as_eager() -> None:
    torch.manual_seed(0)
    x, labels = torch.randn(150, 4, 20), torch.randint(1, 20, (4, 30))
    rest = labels, torch.tensor([150, 140, 100, 150]), torch.tensor([30, 30, 10, 20])
    exact = both(loss_of, x.double(), *rest, reduction="none")
    found = both(weft.compile(loss_of, fallback="error"), x, *rest, reduction="none")
    eager = both(loss_of, x, *rest, reduction="none")
    for a, b, c in zip(found, eager, exact, strict=True):
        far, near = ((t.double() - c).norm() / c.norm() for t in (a, b))
        assert far <= max(2 * near, 1e-6)


def test_a_loss_is_two_loops_over_time() -> None:
    f = check(*given("padded"))
    texts = [p.artifact.levels().text("loop") for p in f.programs]
    assert [t.count("\nrepeat ") for t in texts] == [1, 1]
    with torch.no_grad():
        torch.testing.assert_close(f(*given("padded")), loss_of(*given("padded")))


def test_a_probability_of_zero() -> None:
    """Logarithms that are infinite: a class that nothing is, and one that a target needs."""
    x, labels, inputs, lengths = given("padded")
    x[0, 1, 5], x[2, 2] = -torch.inf, -torch.inf
    x[2, 2, 0] = 0.0
    labels[1, 0] = 1
    torch._dynamo.reset()
    f = weft.compile(F.ctc_loss, fallback="error")
    args = x.log_softmax(-1), labels, inputs, lengths
    for a, b in zip(both(f, *args), both(F.ctc_loss, *args), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("wrong", ["rows", "labels", "negative", "class"])
def test_wrong_lengths_are_errors(wrong: str) -> None:
    x, labels, inputs, lengths = given("padded")
    if wrong == "class":
        labels[0, 0] = C
    else:
        of = inputs if wrong == "rows" else lengths
        of[0] = {"rows": T + 1, "labels": S + 1, "negative": -1}[wrong]
    with pytest.raises(RuntimeError):
        weft.compile(loss_of)(x, labels, inputs, lengths)


def test_the_operator_by_itself() -> None:
    """What is called where no row is: ATen's own loss, with states in our order."""
    for form in FORMS:
        x, *rest = given(form)
        x = x.log_softmax(-1)
        f = lambda x, *r: torch.ops.weft.ctc_loss(x, *r, 0, False)[0]  # noqa: E731
        g = lambda *a: F.ctc_loss(*a, reduction="none")  # noqa: E731
        for a, b in zip(both(f, x, *rest), both(g, x, *rest), strict=True):
            torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("form", ["padded", "concatenated", "too few rows"])
def test_weft_s_own_gradient(form: str) -> None:
    x, *rest = given(form)

    def loss(x: Tensor, *rest: Tensor) -> Tensor:
        return loss_of(x, *rest, zero_infinity=True)

    f = weft.compile(lambda x, *rest: weft.grad(lambda x: loss(x, *rest))(x))
    torch.testing.assert_close(f(x, *rest), both(loss, x, *rest)[1])
    assert not f.reasons
