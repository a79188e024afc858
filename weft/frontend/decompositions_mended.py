"""What torch's own decompositions and shape functions get wrong, mended by an import.

It is mended for every backend.
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import _meta_registrations
from torch._decomp import decomposition_table

from weft.core.errors import CaptureError
from weft.frontend.ctc import ctc_loss
from weft.frontend.randoms import checked

INTEGERS = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
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


def covariance(
    x: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Of rows of observations, which may have weights; torch's own reads values as it is traced.

    Weights that are negative, or sum to zero, are a fault. CaptureError for what torch refuses, and
    for one observation with weights, where it zeroes its argument.
    """
    rows, weights = x.reshape(1, -1) if x.dim() < 2 else x, [fweights, aweights]
    given, n = [w for w in weights if w is not None], rows.shape[-1]
    fits = x.dim() <= 2 and x.dtype is not torch.bool and not x.is_complex()
    fits = fits and all(w.dim() <= 1 and w.numel() == n for w in given)
    fits = fits and (aweights is None or aweights.is_floating_point())
    fits = fits and (fweights is None or fweights.dtype in INTEGERS)
    if not fits or (n == 1 and len(given) == 1):
        raise CaptureError("cov of these arguments is torch's own")
    if not given:
        off = rows - rows.sum(1, keepdim=True) / n
        return (off @ off.t() / torch.sym_max(n - correction, 0)).squeeze()
    w = math.prod((checked(w, w >= 0) for w in given[1:]), start=checked(given[0], given[0] >= 0))
    w = checked(w, w.sum() != 0)
    total = w.sum()
    freedom = total - correction
    if aweights is not None:
        freedom = total - correction * (w * aweights).sum() / total
    off = rows - (rows * w).sum(1, keepdim=True) / total
    return (off @ (off * w).t() / torch.where(freedom <= 0, 0, freedom)).squeeze()


def correlation(x: torch.Tensor) -> torch.Tensor:
    """The coefficients of rows of observations; of one row 1, or NaN."""
    found = covariance(x)
    if not found.dim():
        return found / found
    deviation = found.diagonal().sqrt()
    return (found / deviation.unsqueeze(1) / deviation).clip(-1, 1)


def _any_element(extents: Any) -> Any:
    """Shape functions of interpolation check an int, which torch refuses: of an empty batch."""
    return math.prod(extents) != 0


def _mend(op: Any, function: Any) -> None:
    """Have a function stand for an operator wherever torch takes that operator apart."""
    implicit = torch._C.DispatchKey.CompositeImplicitAutograd
    decomposition_table[op] = function
    for key in [*op.py_kernels] or [implicit]:
        op.py_kernels[key] = function
    op._dispatch_cache.clear()


_mend(MULTILABEL, multilabel_margin_loss)
_mend(torch.ops.aten.cov.default, covariance)
_mend(torch.ops.aten.ctc_loss.IntList, ctc_loss)
_mend(torch.ops.aten.ctc_loss.Tensor, ctc_loss)
_meta_registrations.multiply_integers = _any_element

# By the functions of Python's that call them, before C++ takes them apart.
IN_PYTHON: dict[Any, Callable[..., torch.Tensor]] = {
    **dict.fromkeys((torch.cov, torch.Tensor.cov), covariance),
    **dict.fromkeys((torch.corrcoef, torch.Tensor.corrcoef), correlation),
    **dict.fromkeys((torch.ctc_loss, torch.nn.functional.ctc_loss), ctc_loss),
}
