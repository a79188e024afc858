"""torch's scan: one recurrence, with its gradient, in parts and as a whole step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan

import weft

Function = Callable[..., Any]


def by_scan(step: Function, init: Any, xs: Any, reverse: bool = False) -> Any:
    return scan(step, init, xs, reverse=reverse)


def by_loop(step: Function, init: Any, xs: Any, reverse: bool = False) -> Any:
    """The same in Python, which eager differentiates."""
    rows, carry, found = range(len(xs[0] if isinstance(xs, tuple) else xs)), init, list[Any]()
    for t in reversed(rows) if reverse else rows:
        row = tuple(x[t] for x in xs) if isinstance(xs, tuple) else xs[t]
        carry, y = step(carry, row)
        found.append(y)
    found = found[::-1] if reverse else found
    if not isinstance(found[0], tuple):
        return carry, torch.stack(found)
    return carry, tuple(map(torch.stack, zip(*found, strict=True)))


def plain(run: Function) -> Function:
    def f(x: Tensor, h: Tensor, u: Tensor, w: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> Any:
            h = torch.tanh(x @ u.T + h @ w.T)
            return h, (2 * h).sin()

        return run(step, h, x)

    return f


def reverse(run: Function) -> Function:
    def f(x: Tensor, h: Tensor, u: Tensor, w: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> Any:
            return h * 0.5 + (x @ u.T) @ w, h.cos()

        return run(step, h, x, reverse=True)

    return f


def several(run: Function) -> Function:
    """Two carried tensors and two of slices; one that sums, and one that is only passed on."""

    def f(x: Tensor, h: Tensor, u: Tensor, w: Tensor) -> Any:
        def step(carry: Any, rows: Any) -> Any:
            (h, total), (a, b) = carry, rows
            after = torch.sigmoid(a @ u.T) * h + (b @ w).relu()
            return (after, total + after.T @ a), (after @ w, a.clone(), h.sum())

        (h, total), (ys, xs, sums) = run(step, (h, u * 1.0), (x, (x @ u.T).sin()))
        return h, ys + sums[:, None, None], total, xs

    return f


def ordered(run: Function) -> Function:
    """Sorts and selections of what no carried tensor decides, which are made outside, and of it."""

    def f(x: Tensor, h: Tensor, u: Tensor, w: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> Any:
            row = (x @ u.T).median(1).values + x.sort(1).values.sum(1)
            h = torch.tanh(h @ w + row[:, None])
            return h, h.median(1).values

        return run(step, h, x)

    return f


FORMS = {f.__name__: f for f in (plain, reverse, several, ordered)}


def given(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(s, dtype=dtype) for s in ((5, 3, 4), (3, 6), (6, 4), (6, 6))]


def gradients(f: Function, tensors: Sequence[Tensor]) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in tensors]
    results = torch.utils._pytree.tree_leaves(f(*leaves))  # pyright: ignore
    weights = [torch.linspace(0, 1, y.numel(), dtype=y.dtype).view(y.shape) for y in results]
    sum((y * w).sum() for y, w in zip(results, weights, strict=True)).backward()
    return [*(y.detach() for y in results), *(t.grad for t in leaves if t.grad is not None)]


@pytest.mark.parametrize("form", FORMS)
def test_a_scan_is_a_recurrence(form: str) -> None:
    f = weft.compile(FORMS[form](by_scan), fallback="error")
    with torch.no_grad():
        torch.testing.assert_close(f(*given()), FORMS[form](by_loop)(*given()))
    assert f.ir("loop").count("\nrepeat ") == 1


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_a_scan(form: str) -> None:
    f = weft.compile(FORMS[form](by_scan))
    wanted = gradients(FORMS[form](by_loop), given())
    for a, b in zip(gradients(f, given()), wanted, strict=True):
        torch.testing.assert_close(a, b)
    assert not f.reasons and not f.report.externs
    g = torch.compile(FORMS[form](by_scan), backend="weft")
    for a, b in zip(gradients(g, given()), wanted, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("form", FORMS)
def test_a_step_with_a_scan_is_one_program(form: str) -> None:
    leaves = [t.requires_grad_() for t in given()]

    def stepping(run: Function) -> Function:
        def step() -> Tensor:
            for t in leaves:
                t.grad = None
            loss = sum(y.sin().sum() for y in FORMS[form](run)(*leaves))
            loss.backward()
            return loss.detach()

        return step

    f = weft.compile(stepping(by_scan))
    found = f(), *(t.grad for t in leaves)
    wanted = stepping(by_loop)(), *(t.grad for t in leaves)
    assert not f.reasons and len(f.programs) == 1 and f.ir("loop").count("\nrepeat ") == 2
    torch.testing.assert_close(found, wanted)


def test_sums_leave_the_loop() -> None:
    """The weights' gradients are one product over all of time."""
    f = weft.compile(plain(by_scan))
    gradients(f, given())
    text = f.programs[1].artifact.levels().text("loop")
    inside = text[text.index("\nrepeat ") :].split("\n\nkernel")[0]
    assert inside.count("    kernel") <= 3 and "f64[6,6]{" not in inside
    assert "slice" in inside and "_turns: f64[2,6,6]" not in inside


def test_second_derivatives_take_a_scan_apart() -> None:
    u = given()[3][:4, :4].clone().requires_grad_()

    def stepping(run: Function) -> Function:
        def step() -> Tensor:
            u.grad, x = None, torch.ones(2, 4, dtype=u.dtype).requires_grad_()
            body = lambda h, t: (torch.tanh(h @ u + t), (h * t).sin())  # noqa: E731
            y = run(body, torch.zeros(4, dtype=u.dtype), x)[1]
            (g,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
            loss = g.square().sum()
            loss.backward()
            return loss.detach()

        return step

    f = weft.compile(stepping(by_scan))
    found = f(), u.grad
    torch.testing.assert_close(found, (stepping(by_loop)(), u.grad))
    assert not f.reasons


@pytest.mark.parametrize("how", ["parts", "whole"])
def test_a_body_that_draws_has_the_gradient_of_what_it_drew(how: str) -> None:
    """It is not compiled: a gradient that computed it again would draw other numbers."""

    def f(x: Tensor, w: Tensor) -> Any:
        def step(h: Tensor, t: Tensor) -> Any:
            h = h + t * w * torch.rand(3)
            return h, h * 2

        return scan(step, torch.zeros(3), x)

    leaf, x = torch.ones(3, requires_grad=True), torch.ones(4, 3)
    g = weft.compile(f) if how == "whole" else torch.compile(f, backend="weft")
    with torch.no_grad():
        assert g(x, leaf)[1].shape == (4, 3)
    h = g(x, leaf)[0]
    h.sum().backward()
    torch.testing.assert_close(leaf.grad, h.detach())
