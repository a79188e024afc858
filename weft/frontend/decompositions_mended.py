"""What torch's own decompositions and shape functions get wrong, mended by an import.

It is mended for every backend.
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

import math
from typing import Any

import torch
from torch import _meta_registrations
from torch._decomp import decomposition_table

from weft.core.errors import CaptureError

MULTILABEL = torch.ops.aten.multilabel_margin_loss_forward.default


def multilabel_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int) -> Any:
    """The loss, and which classes are targets, of x and target of shape [n, c], [c] or [].

    Torch's counts the labels after a row's first -1, and gives the loss of one row an axis.
    """
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    count = rows.shape[1]
    if x.dim() > 2 or not count:
        wanted = "Expected non-empty vector or matrix with optional 0-dim batch size"
        raise CaptureError(f"{wanted}, but got: {list(x.shape)}")
    if x.shape != target.shape:
        raise CaptureError(f"inconsistent target size: {list(target.shape)} for {list(x.shape)}")
    known = (labels == -1).cumsum(1) == 0
    classes = torch.arange(count, device=target.device)
    hit = ((labels.unsqueeze(2) == classes) & known.unsqueeze(2)).any(1)
    told = rows.gather(1, torch.where(known, labels, 0)).unsqueeze(2)
    margin = 1 - told + rows.unsqueeze(1)
    counts = known.unsqueeze(2) & ~hit.unsqueeze(1) & (margin > 0)
    loss = torch.where(counts, margin, 0).sum((1, 2)).div(count).reshape(x.shape[:-1])
    loss = (loss, loss.mean(), loss.sum())[reduction]
    return loss, hit.to(x.dtype).reshape(x.shape)


def _any_element(extents: Any) -> Any:
    """Shape functions of interpolation check an int, which torch refuses: of an empty batch."""
    return math.prod(extents) != 0


def _mend(op: Any, function: Any) -> None:
    """Have a function stand for an operator wherever torch takes that operator apart."""
    decomposition_table[op] = function
    for key in op.py_kernels:
        op.py_kernels[key] = function
    op._dispatch_cache.clear()


_mend(MULTILABEL, multilabel_margin_loss)
_meta_registrations.multiply_integers = _any_element
