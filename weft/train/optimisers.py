"""Optimisers as pure functions of tensors, which compile into one program with the gradients.

optimiser = clip(ranger(), 1.0)
state = optimiser.init(params)                                   # zeros, as many as it needs
params, state = optimiser.update(grads, state, params, step, rate)   # new tensors

params, grads: lists of tensors, float, of any shapes; step: f64[], from 1 on; rate: f64[].
Results have the dtypes of what they replace. Those of torch.optim that have the same name give its
values; what wraps another (`clip`, `decay`, `bounded`, `lookahead`) is an optimiser too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = list[Tensor]
Slots = dict[str, Tensors]
"""The optimiser's state: by name, a tensor for each parameter."""
Betas = tuple[float, float]
New = tuple[Tensors, Slots]
Row = tuple[Tensor, ...]


@dataclass(frozen=True)
class Optimiser:
    init: Callable[[Sequence[Tensor]], Slots]
    update: Callable[[Tensors, Slots, Tensors, Tensor, Tensor], New]


def each(slots: str, rule: Callable[..., Row]) -> Optimiser:
    """An optimiser that treats each parameter by itself.

    rule(gradient, parameter, step, rate, *slots) gives the new parameter and slots.
    """
    names = slots.split()

    def init(params: Sequence[Tensor]) -> Slots:
        return {name: [torch.zeros_like(p) for p in params] for name in names}

    def update(grads: Tensors, state: Slots, params: Tensors, step: Tensor, rate: Tensor) -> New:
        rows = zip(grads, params, *(state[name] for name in names), strict=True)
        new = [
            [a.to(b.dtype) for a, b in zip(rule(g, p, step, rate, *old), (p, *old), strict=True)]
            for g, p, *old in rows
        ]
        return [n[0] for n in new], {name: [n[i] for n in new] for i, name in enumerate(names, 1)}

    return Optimiser(init, update)


# --- those that know gradients --------------------------------------------------------------------


def sgd(momentum: float = 0.0, nesterov: bool = False) -> Optimiser:
    def rule(g: Tensor, p: Tensor, step: Tensor, rate: Tensor, *m: Tensor) -> Row:
        if not momentum:
            return (p - rate * g,)
        moment = momentum * m[0] + g
        return p - rate * (g + momentum * moment if nesterov else moment), moment

    return each("moment" if momentum else "", rule)


def adam(betas: Betas = (0.9, 0.999), eps: float = 1e-8) -> Optimiser:
    """Kingma, Ba 2015."""
    a, b = betas

    def rule(g: Tensor, p: Tensor, step: Tensor, rate: Tensor, m: Tensor, v: Tensor) -> Row:
        m, v = m + (g - m) * (1 - a), b * v + (1 - b) * g * g
        size, scale = rate / (1 - a**step), (1 - b**step).sqrt()
        return p - size * (m / (v.sqrt() / scale + eps)), m, v

    return each("mean square", rule)


def adamw(betas: Betas = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01) -> Optimiser:
    """Loshchilov, Hutter 2019."""
    return decay(adam(betas, eps), weight_decay)


def radam(betas: Betas = (0.9, 0.999), eps: float = 1e-8) -> Optimiser:
    """Rectified Adam (Liu and others 2020): plain momentum while the variance is not known."""
    a, b = betas
    most = 2 / (1 - b) - 1

    def rule(g: Tensor, p: Tensor, step: Tensor, rate: Tensor, m: Tensor, v: Tensor) -> Row:
        m, v = m + (g - m) * (1 - a), b * v + (1 - b) * g * g
        known = most - 2 * step * b**step / (1 - b**step)
        rectified = (known - 4) * (known - 2) * most / ((most - 4) * (most - 2) * known)
        scale = ((1 - b**step) * rectified.clamp(min=0.0)).sqrt()
        size = rate / (1 - a**step)
        return p - size * torch.where(known > 5, m * scale / (v.sqrt() + eps), m), m, v

    return each("mean square", rule)


def rmsprop(alpha: float = 0.99, eps: float = 1e-8) -> Optimiser:
    def rule(g: Tensor, p: Tensor, step: Tensor, rate: Tensor, v: Tensor) -> Row:
        v = alpha * v + (1 - alpha) * g * g
        return p - rate * (g / (v.sqrt() + eps)), v

    return each("square", rule)


def lion(betas: Betas = (0.9, 0.99)) -> Optimiser:
    """Chen and others 2023: the sign of a mean of gradients."""
    a, b = betas

    def rule(g: Tensor, p: Tensor, step: Tensor, rate: Tensor, m: Tensor) -> Row:
        return p - rate * (a * m + (1 - a) * g).sign(), b * m + (1 - b) * g

    return each("mean", rule)


def ranger(every: int = 6) -> Optimiser:
    """Rectified Adam that looks ahead (Wright 2019)."""
    return lookahead(radam((0.95, 0.999), 1e-5), every)


# --- those that wrap another ----------------------------------------------------------------------


def clip(inner: Optimiser, most: float) -> Optimiser:
    """Scales all gradients so that their norm as one vector is at most `most`."""

    def update(grads: Tensors, state: Slots, params: Tensors, step: Tensor, rate: Tensor) -> New:
        norm = torch.stack([g.square().sum() for g in grads]).sum().sqrt()
        share = (most / (norm + 1e-6)).clamp(max=1.0)
        return inner.update([g * share for g in grads], state, params, step, rate)

    return Optimiser(inner.init, update)


def decay(inner: Optimiser, share: float) -> Optimiser:
    """Shrinks parameters by `rate * share` before each update."""

    def update(grads: Tensors, state: Slots, params: Tensors, step: Tensor, rate: Tensor) -> New:
        small = [(p * (1 - rate * share)).to(p.dtype) for p in params]
        return inner.update(grads, state, small, step, rate)

    return Optimiser(inner.init, update)


def bounded(inner: Optimiser, most: float) -> Optimiser:
    """Keeps each parameter within -most and most, so that integers of few bits hold it."""

    def update(grads: Tensors, state: Slots, params: Tensors, step: Tensor, rate: Tensor) -> New:
        new, state = inner.update(grads, state, params, step, rate)
        return [p.clamp(-most, most) for p in new], state

    return Optimiser(inner.init, update)


def lookahead(inner: Optimiser, every: int = 6, share: float = 0.5) -> Optimiser:
    """Slow weights go `share` of the way to the fast ones after each `every` steps, which begin
    again from there (Zhang and others 2019)."""

    def init(params: Sequence[Tensor]) -> Slots:
        return {**inner.init(params), "slow": [p.detach().clone() for p in params]}

    def update(grads: Tensors, state: Slots, params: Tensors, step: Tensor, rate: Tensor) -> New:
        own = {name: slot for name, slot in state.items() if name != "slow"}
        fast, own = inner.update(grads, own, params, step, rate)
        now, pairs = step % every == 0, list(zip(state["slow"], fast, strict=True))
        slow = [torch.where(now, s + (f - s) * share, s) for s, f in pairs]
        new = [torch.where(now, s, f) for s, f in zip(slow, fast, strict=True)]
        return new, {**own, "slow": slow}

    return Optimiser(init, update)
