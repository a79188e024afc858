"""How a weight of few bits is held: codes and scales as buffers, and torch calls that decode them.

storage = Int4.of(weight, group=32)     # weight: float [N, K]
storage.weight(torch.float32)           # [N, K] again, each element within half a step
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from weft.core.errors import WeftError

F16 = torch.finfo(torch.float16)


class LowBitError(WeftError):
    """A weight or a file that no module of few bits can be made of."""


class Storage(nn.Module):
    """Holds a weight [N, K] in buffers whose first axis is N.

    Buffers keep their dtype in `module.to(dtype)`: scales are part of the format.
    """

    integers: bool = False  # whether `linear_int8` sums in integers

    def __init__(self, columns: int, **parts: Tensor | None) -> None:
        super().__init__()
        self.columns = columns
        self.names = [name for name, part in parts.items() if part is not None]
        for name, part in parts.items():
            self.register_buffer(name, part)

    @property
    def size(self) -> tuple[int, int]:
        """N, K: the sizes of the weight."""
        return len(self.parts()[0]), self.columns

    def parts(self) -> list[Tensor]:
        return [self.get_buffer(name) for name in self.names]

    def decode(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        """[..., K] of the parts, each with its first axis replaced by the leading axes."""
        raise NotImplementedError

    def weight(self, dtype: torch.dtype) -> Tensor:
        """The whole weight [N, K] in a float dtype."""
        return self.decode(dtype, *self.parts())

    def rows(self, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of the weight: index i64[...] -> [..., K]."""
        flat = [F.embedding(index, part.reshape(len(part), -1)) for part in self.parts()]
        pairs = zip(flat, self.parts(), strict=True)
        return self.decode(dtype, *[f.reshape(*index.shape, *p.shape[1:]) for f, p in pairs])

    def take_rows(self, index: Tensor) -> None:
        """Puts rows of the weight in another order: row i is then row index[i] of before."""
        for name in self.names:
            setattr(self, name, self.get_buffer(name)[index])

    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x [..., K] -> [..., N] in x's dtype."""
        return F.linear(x, self.weight(x.dtype), bias)

    def linear_int8(self, x: Tensor) -> Tensor:
        """x f32[..., K], rounded to int8 by rows (and groups) -> f32[..., N]; sums are exact.

        The gradient is that of `linear`: it passes straight through the rounding.
        """
        y = self.sums(x.detach())
        if not (torch.is_grad_enabled() and x.requires_grad):
            return y
        exact = self.linear(x, None)
        return y + (exact - exact.detach())

    def sums(self, x: Tensor) -> Tensor:
        """`linear_int8` without a gradient."""
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def moved(x: Tensor) -> Tensor:
            y = fn(x)
            return y if y.dtype == x.dtype or isinstance(x, nn.Parameter) else x.to(y.device)

        return super()._apply(moved, recurse)


class Reordered(Storage):
    """A storage in another order: column i of `inner` is column order[i] of the weight."""

    order: Tensor

    def __init__(self, inner: Storage, order: Tensor) -> None:
        super().__init__(inner.columns, order=order, back=order.argsort())
        self.inner = inner
        self.integers = inner.integers

    @property
    def size(self) -> tuple[int, int]:
        return self.inner.size

    def weight(self, dtype: torch.dtype) -> Tensor:
        return self.inner.weight(dtype)[:, self.get_buffer("back")]

    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return self.inner.linear(x[..., self.order], bias)

    def sums(self, x: Tensor) -> Tensor:
        return self.inner.sums(x[..., self.order])


class Rounded(Storage):
    """A storage made of a float weight, by rounding it in groups along K."""

    top: ClassVar[float]  # the magnitude of the code that the largest of a group gets
    bounds: ClassVar[tuple[int, int]]  # of integer codes

    @classmethod
    def scales(cls, w: Tensor) -> Tensor:
        """f32[N, groups, group] -> [N, groups]: the least scales that no code overflows."""
        return narrowed(w.abs().amax(-1) / cls.top)

    @classmethod
    def width(cls, columns: int) -> int:
        """The elements of a group that is a whole row."""
        return columns

    @classmethod
    def of(cls, weight: Tensor, group: int | None, scale: Tensor | None = None) -> Rounded:
        """Rounds a float weight [N, K] to nearest; K is padded with zeros to whole groups.

        The scale, f32[N, groups], is that of `scales` if it is None.
        """
        w = grouped(weight.float(), group or cls.width(weight.shape[-1]))
        scale = narrowed(scale) if scale is not None else cls.scales(w)
        return cls.made(weight.shape[-1], divided(w, scale), scale, group)

    @classmethod
    def made(cls, columns: int, q: Tensor, scale: Tensor, group: int | None) -> Rounded:
        """The storage of a weight that was divided by its scale, [N, groups, group]."""
        codes = cls.coded(q).flatten(-2)
        return cls(columns, codes=codes, scale=scale.squeeze(-1) if group is None else scale)

    @classmethod
    def coded(cls, q: Tensor) -> Tensor:
        """Codes of the elements of a weight that was divided by its scale."""
        raise NotImplementedError


def grouped(weight: Tensor, group: int) -> Tensor:
    """[..., K] -> [..., groups, group], with zeros behind K."""
    return F.pad(weight, (0, -weight.shape[-1] % group)).unflatten(-1, (-1, group))


def fits(scale: Tensor) -> Tensor:
    """Where scales are 0 or normal in float16."""
    size = scale.abs()
    return (size == 0) | ((size >= F16.smallest_normal) & (size <= F16.max))


def narrowed(scale: Tensor) -> Tensor:
    """Scales in float16 if all fit it; else in float32."""
    return scale.to(torch.float16 if bool(fits(scale).all()) else torch.float32)


def divided(x: Tensor, scale: Tensor) -> Tensor:
    """x [..., n] / scale [...] in f32; x itself where the scale is 0."""
    return x / torch.where(scale == 0, 1, scale.float())[..., None]


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """x f32[..., n] -> int8 codes [..., n] and scales [...]: the largest magnitude is 127."""
    scale = x.abs().amax(-1) / 127
    return divided(x, scale).round().clamp(-127, 127).to(torch.int8), scale


def grouped_sums(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    """x f32[..., K], int codes [N, groups, group], scales [N, groups] -> f32[..., N]."""
    xq, sx = rounded(grouped(x, codes.shape[-1]))
    sums = torch.einsum("...gk,ngk->...ng", xq.to(torch.int32), codes.to(torch.int32))
    return (sums.to(torch.float32) * scale.to(torch.float32) * sx[..., None, :]).sum(-1)


def int8_product(x: Tensor, codes: Tensor) -> Tensor:
    """int8 [M, K] and [N, K] -> int32 [M, N]; by torch's own kernel where eager has one for it.

    For one column that is wrong on CPUs, in torch 2.13.
    """
    m, k, n = *x.shape, len(codes)
    eager = type(x) is Tensor and not torch.compiler.is_compiling()
    if eager and k > 1 and (x.device.type == "cpu" or (m > 16 and k % 8 == 0 and n % 8 == 0)):
        return torch.ops.aten._int_mm(x, codes.T)
    return x.to(torch.int32) @ codes.to(torch.int32).T


class Int8(Rounded):
    """codes i8[N, K], scale f16 or f32 [N] or [N, K / group]: value = code * scale."""

    integers = True
    top = 127
    bounds = (-127, 127)
    codes: Tensor
    scale: Tensor

    @classmethod
    def coded(cls, q: Tensor) -> Tensor:
        return q.round().clamp(*cls.bounds).to(torch.int8)

    def decode(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        codes, scale = parts
        if self.scale.dim() == 1:
            return codes.to(dtype) * scale[..., None].to(dtype)
        return cut(scaled_groups(codes.to(dtype), scale), self.columns)

    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        if self.scale.dim() > 1 or x.dtype == torch.float16:  # sums of codes overflow f16
            return super().linear(x, bias)
        y = F.linear(x, self.codes.to(x.dtype)) * self.scale.to(x.dtype)
        return y if bias is None else y + bias

    def sums(self, x: Tensor) -> Tensor:
        if self.scale.dim() > 1:
            codes = self.codes.unflatten(-1, (self.scale.shape[-1], -1))
            return grouped_sums(x, codes, self.scale)
        xq, sx = rounded(x)
        sums = int8_product(xq.reshape(-1, x.shape[-1]), self.codes)
        sums = sums.reshape(*x.shape[:-1], len(self.codes))
        return sums.to(torch.float32) * sx[..., None] * self.scale.to(torch.float32)


class Int4(Rounded):
    """codes u8[N, groups, group / 2], scale f16 or f32 [N, groups], zero u8[N, groups] or none.

    Byte j of a group holds element j in its low half and element j + group / 2 in its high half,
    the order of GGML's Q4_0. value = (half - zero) * scale, where zero is 8 unless it is stored.
    """

    integers = True
    bounds = (-8, 7)
    codes: Tensor
    scale: Tensor
    zero: Tensor | None

    @classmethod
    def scales(cls, w: Tensor) -> Tensor:
        """What takes the element of the largest magnitude of each group to -8, as in Q4_0."""
        return narrowed(w.gather(-1, w.abs().argmax(-1, keepdim=True)).squeeze(-1) / -8)

    @classmethod
    def width(cls, columns: int) -> int:
        return columns + columns % 2

    @classmethod
    def made(cls, columns: int, q: Tensor, scale: Tensor, group: int | None) -> Int4:
        return cls(columns, codes=halved(q.round().clamp(*cls.bounds) + 8), scale=scale, zero=None)

    @classmethod
    def asymmetric(cls, weight: Tensor, group: int | None) -> Int4:
        """With a zero point for each group: codes from 0 to 15 span its values, and 0."""
        w = grouped(weight.float(), group or cls.width(weight.shape[-1]))
        low, high = w.amin(-1).clamp(max=0), w.amax(-1).clamp(min=0)
        scale = narrowed((high - low) / 15)
        zero = divided(-low[..., None], scale).round().clamp(0, 15)
        codes = halved((divided(w, scale).round() + zero).clamp(0, 15))
        zero = zero.squeeze(-1).to(torch.uint8)
        return cls(weight.shape[-1], codes=codes, scale=scale, zero=zero)

    def decode(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        codes, scale, *zero = parts
        q = halves(codes).to(dtype) - (zero[0][..., None].to(dtype) if zero else 8)
        return cut((q * scale[..., None].to(dtype)).flatten(-2), self.columns)

    def sums(self, x: Tensor) -> Tensor:
        zero = 8 if self.zero is None else self.zero[..., None].to(torch.int32)
        return grouped_sums(x, halves(self.codes).to(torch.int32) - zero, self.scale)


class Fp8(Rounded):
    """codes u8[N, K], the bytes of float8_e4m3fn, scale [N] or [N, K / group] as for Int8.

    Decoded by shifts: every compiler takes these, and the result is exact in f16, bf16 and f32.
    """

    top = 448
    codes: Tensor
    scale: Tensor

    @classmethod
    def coded(cls, q: Tensor) -> Tensor:
        return q.clamp(-cls.top, cls.top).to(torch.float8_e4m3fn).view(torch.uint8)

    def decode(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        codes, scale = parts
        values = e4m3_values(codes).to(dtype)
        if scale.dim() < codes.dim():
            return values * scale[..., None].to(dtype)
        return cut(scaled_groups(values, scale), self.columns)


def halves(codes: Tensor) -> Tensor:
    """u8[..., n] -> [..., 2 n]: the low halves of all bytes, then the high ones."""
    return torch.cat((codes & 15, codes >> 4), -1)


def halved(q: Tensor) -> Tensor:
    """Codes [..., n] from 0 to 15 -> u8[..., n / 2] in the order of Int4."""
    low, high = q.to(torch.uint8).chunk(2, -1)
    return low | high << 4


def scaled_groups(values: Tensor, scale: Tensor) -> Tensor:
    """[..., K] * [..., groups]: each group by its scale."""
    apart = values.unflatten(-1, (scale.shape[-1], -1))
    return (apart * scale[..., None].to(values.dtype)).flatten(-2)


def cut(values: Tensor, columns: int) -> Tensor:
    """Without the zeros behind K."""
    return values if values.shape[-1] == columns else values[..., :columns]


def e4m3_values(codes: Tensor) -> Tensor:
    """Bytes of float8_e4m3fn, none of them NaN, in f32: (8 + m) * 2**(e - 10), or m * 2**-9."""
    exponent = (codes >> 3 & 15).to(torch.int32)
    mantissa = (codes & 7).to(torch.int32) + (exponent > 0).to(torch.int32) * 8
    size = mantissa << exponent.clamp(min=1)
    return torch.where(codes > 127, -size, size).to(torch.float32) * 2.0**-10
