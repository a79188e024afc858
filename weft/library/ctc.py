"""The operator weft::ctc_loss: connectionist temporal classification (Graves and others 2006).

losses, blanks, labels = torch.ops.weft.ctc_loss(log_probs, targets, inputs, lengths, 0, False)

log_probs [time,batch,classes] f32 or f64; targets [batch,most] or concatenated [labels]; inputs and
lengths [batch], of the rows and of the targets, all i64 -> losses [batch], and what its gradient
reads: logarithms of the probabilities of all ways to a state, [time,*slots]. A slot is a blank and
the label after it. Slots are [batch,most+1], or concatenated [labels+batch]: a sequence has one
more than labels. weft computes it as recurrences (frontend/aten/ctc.py). What stands here calls
ATen's loss, for what it cannot compile; unlike ATen's, the shapes are no data.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

LIBRARY = torch.library.Library("weft", "FRAGMENT")
ATEN = torch.ops.aten


def slots(targets: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each slot its sequence, its place in that, and how many labels that has."""
    count = lengths.shape[0]
    if targets.dim() == 2:
        batch, place = torch.arange(count).unsqueeze(1), torch.arange(targets.shape[1] + 1)
        batch, place = torch.broadcast_tensors(batch, place)
    else:
        batch = torch.repeat_interleave(lengths.cpu() + 1)
        first = (lengths.cpu() + 1).cumsum(0) - lengths.cpu() - 1
        place = torch.arange(batch.shape[0]) - first[batch]
    batch, place = batch.to(lengths.device), place.to(lengths.device)
    return batch, place, lengths[batch]


def ctc_loss(
    log_probs: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, blank: int, zero: bool
) -> tuple[Tensor, Tensor, Tensor]:
    losses, alphas = ATEN._ctc_loss.Tensor(log_probs, targets, inputs, lengths, blank, zero)
    batch, place, length = slots(targets, lengths)
    found: list[Tensor] = []
    for odd in (0, 1):
        state = (2 * place + odd).clamp(max=alphas.shape[2] - 1)
        values = alphas[batch.unsqueeze(0), _times(alphas.shape[1], batch), state.unsqueeze(0)]
        found.append(torch.where(place + odd <= length, values, -math.inf))
    return losses, found[0], found[1]


def ctc_loss_backward(
    g: Tensor, log_probs: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor,
    losses: Tensor, blanks: Tensor, labels: Tensor, blank: int, zero: bool,
) -> Tensor:  # fmt: skip
    """The gradient of log_probs, where g is that of the losses."""
    batch, place, _ = slots(targets, lengths)
    most, times = int(place.max()) if place.numel() else 0, blanks.shape[0]
    alphas = blanks.new_full((lengths.shape[0], times, 2 * most + 2), -math.inf)
    for odd, values in enumerate((blanks, labels)):
        state = (2 * place + odd).unsqueeze(0)
        alphas[batch.unsqueeze(0), _times(times, batch), state] = values
    given = log_probs, targets, inputs, lengths, losses, alphas[:, :, : 2 * most + 1]
    return ATEN._ctc_loss_backward.Tensor(g.contiguous(), *given, blank, zero)


def _times(count: int, batch: Tensor) -> Tensor:
    return torch.arange(count, device=batch.device).reshape(-1, *(1,) * batch.dim())


def _shapes(log_probs: Tensor, targets: Tensor, inputs: Tensor, *given: Any) -> Any:
    count, size = log_probs.shape[1], targets.shape[-1]
    own = (count, size + 1) if targets.dim() == 2 else (size + count,)
    states = (log_probs.new_empty((log_probs.shape[0], *own)) for _ in range(2))
    return log_probs.new_empty((count,)), *states


def _shape(g: Tensor, log_probs: Tensor, *given: Any) -> Tensor:
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:4], *output)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    ctx.how = inputs[4:]


def _backward(ctx: Any, g: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if g is None:
        return (None,) * 6
    found = torch.ops.weft.ctc_loss_backward(g, *ctx.saved_tensors, *ctx.how)
    return found, *(None,) * 5


def _no_second(ctx: Any, g: Tensor) -> Any:
    raise NotImplementedError("the derivative for 'ctc_loss_backward' is not implemented")


GIVEN = "Tensor log_probs, Tensor targets, Tensor inputs, Tensor lengths"
KEPT, HOW = "Tensor losses, Tensor blanks, Tensor labels", "int blank, bool zero_infinity"
LIBRARY.define(f"ctc_loss({GIVEN}, {HOW}) -> (Tensor, Tensor, Tensor)")
LIBRARY.define(f"ctc_loss_backward(Tensor g, {GIVEN}, {KEPT}, {HOW}) -> Tensor")
LIBRARY.impl("ctc_loss", ctc_loss, "CompositeExplicitAutograd")
LIBRARY.impl("ctc_loss_backward", ctc_loss_backward, "CompositeExplicitAutograd")
torch.library.register_fake("weft::ctc_loss", _shapes, lib=LIBRARY)
torch.library.register_fake("weft::ctc_loss_backward", _shape, lib=LIBRARY)
torch.library.register_autograd("weft::ctc_loss", _backward, setup_context=_keep, lib=LIBRARY)
torch.library.register_autograd("weft::ctc_loss_backward", _no_second, lib=LIBRARY)
