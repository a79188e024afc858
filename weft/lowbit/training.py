"""Training for few bits: Linears whose weights are rounded as they will be stored.

model = weft.lowbit.prepare(model, "int4")      # then train it as any other module
model = weft.lowbit.convert(model)              # layers as weft.quantize makes them
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.core.errors import choice
from weft.lowbit.modules import LowBit
from weft.lowbit.quantize import KINDS, SKIP, Report, check_options, counted, replace
from weft.lowbit.storage import LowBitError, Rounded, Storage, cut, divided, fits, grouped, rounded


def passed(exact: Tensor, value: Tensor) -> Tensor:
    """The value, with the gradient of `exact` (straight through)."""
    return exact + (value - exact).detach()


class Learned(Storage):
    """A float weight [N, K], rounded at each use by scales that are learned with it.

    LSQ (Esser et al., Learned Step Size Quantization, 2020): with q = w / scale, the gradient of
    the scale is round(q) - q inside of the codes' range and the bound outside; it is divided by the
    root of the elements of a scale times the largest code. That of the weight is passed inside.
    """

    integers = True

    def __init__(self, kind: type[Rounded], weight: nn.Parameter, group: int | str | None) -> None:
        super().__init__(weight.shape[-1])
        self.kind, self.whole = kind, group == "tensor"
        self.group = group if isinstance(group, int) else None
        first = kind.scales(self.apart(weight.detach()))
        if self.whole:
            largest = first.abs().argmax()
            first = first.flatten()[largest].reshape(1, 1)
        self.values, self.scale = weight, nn.Parameter(first.float())

    @property
    def size(self) -> tuple[int, int]:
        return len(self.values), self.columns

    def apart(self, weight: Tensor) -> Tensor:
        return grouped(weight.float(), self.group or self.kind.width(self.columns))

    def stored_scale(self) -> Tensor:
        """The scale in the f16 that it will be stored in, where it fits."""
        return passed(self.scale, torch.where(fits(self.scale), self.scale.half(), self.scale))

    def weight(self, dtype: torch.dtype) -> Tensor:
        w, (low, high) = self.apart(self.values), self.kind.bounds
        slower = (w.numel() / self.scale.numel() * high) ** -0.5
        scale = self.stored_scale()
        scale = scale.detach() + (scale - scale.detach()) * slower
        q = divided(w, scale).clamp(low, high)
        return cut((passed(q, q.round()) * scale[..., None]).flatten(-2), self.columns).to(dtype)

    def rows(self, index: Tensor, dtype: torch.dtype) -> Tensor:
        return F.embedding(index, self.weight(dtype))

    def linear_int8(self, x: Tensor) -> Tensor:
        q, scale = rounded(self.apart(x))
        y = (q * scale[..., None]).reshape(*x.shape[:-1], -1)
        return F.linear(passed(x, cut(y, self.columns)), self.weight(torch.float32))

    def stored(self, name: str) -> Storage:
        """The storage of this weight as it is rounded now; `name` is for errors."""
        scale = self.stored_scale().detach()
        scale = scale.expand(len(self.values), 1) if self.whole else scale
        if not bool(torch.isfinite(self.values).all() and torch.isfinite(scale).all()):
            raise LowBitError(f"{name}.storage has elements that are not finite")
        return self.kind.of(self.values.detach(), self.group, scale=scale)


def prepare(
    module: nn.Module,
    kind: Literal["int8", "int4"],
    group: int | Literal["default", "tensor"] | None = "default",
    activations: Literal["int8"] | None = None,
    skip: Sequence[str] = SKIP,
) -> nn.Module:
    """Replaces Linears by layers that round their weights at each use; returns the module.

    Options are those of `weft.quantize`, and so is the first scale; with "tensor" a weight has one.
    Parameters stay the same objects, and each layer has one more, `storage.scale`, f32. Gradients
    pass straight through what is rounded; that of a scale is as in LSQ (`Learned`). `convert` makes
    the layers that are stored; they compute the same but for the order of sums.
    """
    columns = None if group == "tensor" else check_options(kind, group, activations, False)
    choice("kind of weight to train", kind, ("int8", "int4"))

    def make(weight: nn.Parameter) -> Storage:
        return Learned(KINDS[kind], weight, group if group == "tensor" else columns)

    return replace(module, make, activations, skip)


def convert(module: nn.Module) -> nn.Module:
    """Replaces what `prepare` made by layers as `weft.quantize` makes them; returns the module."""
    made: dict[int, Storage] = {}
    for name, layer in module.named_modules():
        if isinstance(layer, LowBit) and isinstance(layer.storage, Learned):
            made[id(layer.storage)] = layer.storage.stored(name)
    for layer in module.modules():
        if isinstance(layer, LowBit):
            layer.storage = made.get(id(layer.storage), layer.storage)
    report: Report = vars(module)["lowbit_report"]
    report.bytes_per_token, report.stored = counted(module)
    return module
