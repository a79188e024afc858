"""torch.ctc_loss in other ops, above autograd: of ATen's parts the shapes are data.

losses, *kept = torch.ops.weft.ctc_loss(log_probs, targets, inputs, lengths, 0, False)
"""

import math
from collections.abc import Sequence

import torch

import weft.library.ctc  # noqa: F401  # pyright: ignore[reportUnusedImport]  # an operator
from weft.core.errors import CaptureError

Lengths = torch.Tensor | Sequence[int]


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: int | str = 1,
    zero_infinity: bool = False,
) -> torch.Tensor:
    """As aten/src/ATen/native/LossCTC.cpp has it; CaptureError for what that refuses by shapes.

    A reduction is a number of torch._C's, 0 for none, or a word of torch.nn.functional's.
    """
    batched = log_probs.dim() == 3
    x = log_probs if batched else log_probs.unsqueeze(1)
    targets = targets.to(x.device, torch.int64)
    inputs, lengths = (_lengths(n, x.device) for n in (input_lengths, target_lengths))
    _check(x, targets, inputs, lengths, blank, reduction)
    losses = torch.ops.weft.ctc_loss(x, targets, inputs, lengths, blank, zero_infinity)[0]
    if zero_infinity:
        losses = torch.where(losses == math.inf, 0.0, losses)
    if reduction in (1, "mean"):
        return (losses / lengths.clamp_min(1).to(losses.dtype)).mean()
    if reduction in (2, "sum"):
        return losses.sum()
    return losses if batched else losses.squeeze(0)


def _lengths(given: Lengths, device: torch.device) -> torch.Tensor:
    tensor = given if isinstance(given, torch.Tensor) else torch.tensor(given, dtype=torch.int64)
    if tensor.is_floating_point() or tensor.dtype is torch.bool:
        raise CaptureError("ctc_loss of lengths that are no integers")
    return tensor.to(device, torch.int64).reshape(-1)


def _check(
    x: torch.Tensor,
    targets: torch.Tensor,
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    blank: int,
    reduction: int | str,
) -> None:
    fits = x.dim() == 3 and x.dtype in (torch.float32, torch.float64)
    fits = fits and targets.dim() in (1, 2) and (targets.dim() == 1 or len(targets) == x.shape[1])
    fits = fits and inputs.shape == lengths.shape == x.shape[1:2] and 0 <= blank < x.shape[2]
    if not fits or not x.shape[1] or reduction not in (0, 1, 2, "none", "mean", "sum"):
        raise CaptureError("ctc_loss of these shapes and dtypes is torch's own")
