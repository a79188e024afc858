"""The block formats of GGUF as storages: bytes [N, blocks, bytes of a block] -> Storage.

BLOCKS["Q4_K"].read(raw).weight(torch.float32)     # as gguf-py dequantises it, bit for bit

All but those that are int8 or int4 of weft's own are decoded in f32, then cast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from weft.lowbit.storage import Int4, Int8, Storage, halves

F4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of E2M1, by its three low bits
WIDE = 256  # elements of a block of the K formats, in 8 parts of 32


def pieces(raw: Tensor, *sizes: int) -> list[Tensor]:
    """Splits the bytes of blocks; a size of -2 is that of a scale in f16."""
    parts = raw.split([abs(size) for size in sizes], -1)
    return [
        part.contiguous().view(torch.float16).squeeze(-1) if size == -2 else part.contiguous()
        for part, size in zip(parts, sizes, strict=True)
    ]


def bits(codes: Tensor, width: int) -> Tensor:
    """u8[..., n] -> [..., 8 / width, n]: the bits of each byte by `width`, the lowest first."""
    shifts = torch.arange(0, 8, width, dtype=torch.uint8, device=codes.device)
    return codes[..., None, :] >> shifts[:, None] & (1 << width) - 1


class Dense(Storage):
    """values f16, bf16 or f32 [N, K] as they are; cast where they are used."""

    def decode(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        return parts[0].to(dtype)


class Offset(Storage):
    """codes u8[N, G, 16], scale and least f16[N, G]: value = scale * half + least (Q4_1)."""

    def decode(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        codes, *floats = parts
        scale, least = (part.to(torch.float32)[..., None] for part in floats)
        return (scale * halves(codes).to(torch.float32) + least).flatten(-2).to(dtype)


class FiveBits(Storage):
    """codes u8[N, G, 16], high u8[N, G, 4], scale f16[N, G]: bit i of `high` is of element i."""

    def decode(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        codes, high, scale = parts
        fifth = bits(high, 1).transpose(-1, -2).flatten(-2)
        q = (halves(codes) | fifth << 4).to(torch.float32) - 16
        return (scale.to(torch.float32)[..., None] * q).flatten(-2).to(dtype)


class Wide(Storage):
    """Q4_K and Q5_K: value = d * scale * code - dmin * least, in groups of 32.

    codes u8[N, K / 64, 32], scales and mins u8[N, K / 256, 8], d and dmin f16[N, K / 256]; for
    Q5_K also high u8[N, K / 256, 32], whose bit s of byte j is of element j of group s.
    """

    def decode(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        codes, scales, mins, d, dmin, *high = parts
        q = halves(codes).flatten(-2).unflatten(-1, (-1, 8, 32))
        for fifth in high:
            q = q | bits(fifth, 1) << 4
        scale = (d.to(torch.float32)[..., None] * scales.to(torch.float32))[..., None]
        least = (dmin.to(torch.float32)[..., None] * mins.to(torch.float32))[..., None]
        return (scale * q.to(torch.float32) - least).flatten(-3).to(dtype)


class SixBits(Storage):
    """Q6_K: low u8[N, K / 128, 64], high u8[N, K / 128, 32], scales i8[N, K / 256, 16], d f16.

    Of 128 elements, the low halves of `low` are the first 64; two bits of `high` are of each 32.
    """

    def decode(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        low, high, scales, d = parts
        q = halves(low).to(torch.int32) | bits(high, 2).flatten(-2).to(torch.int32) << 4
        values = (q - 32).to(torch.float32).flatten(-2).unflatten(-1, (-1, 16, 16))
        scale = (d.to(torch.float32)[..., None] * scales.to(torch.float32))[..., None]
        return (scale * values).flatten(-3).to(dtype)


class Table(Storage):
    """codes u8[N, G, g / 2] in the order of Int4, scale [N, G]: value = table[half] * scale.

    The scale is f32; or u8, the exponent e of 2**(e - 127) (E8M0), where 255 is no number.
    """

    table: Tensor
    powers: Tensor

    def __init__(self, columns: int, table: Tensor, codes: Tensor, scale: Tensor) -> None:
        super().__init__(columns, codes=codes, scale=scale)
        powers = torch.tensor([2.0 ** (e - 127) for e in range(255)] + [torch.nan])
        self.register_buffer("table", table.float(), persistent=False)
        powers = powers if scale.dtype == torch.uint8 else None
        self.register_buffer("powers", powers, persistent=False)

    def decode(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        codes, scale = parts
        if scale.dtype == torch.uint8:
            scale = self.powers[scale.to(torch.int32)]
        values = self.table[halves(codes).to(torch.int32)]
        return (values * scale[..., None]).flatten(-2).to(dtype)


def mxfp4(codes: Tensor, exponents: Tensor) -> Table:
    """E2M1 in blocks of 32 with E8M0 scales: codes u8[N, G, 16] in the order of Int4."""
    return Table(32 * codes.shape[1], torch.tensor([*F4, *(-x for x in F4)]), codes, exponents)


def q8_0(raw: Tensor) -> Storage:
    scale, codes = pieces(raw, -2, 32)
    return Int8(32 * raw.shape[1], codes=codes.view(torch.int8).flatten(1), scale=scale)


def q4_0(raw: Tensor) -> Storage:
    scale, codes = pieces(raw, -2, 16)
    return Int4(32 * raw.shape[1], codes=codes, scale=scale, zero=None)


def q4_1(raw: Tensor) -> Storage:
    scale, least, codes = pieces(raw, -2, -2, 16)
    return Offset(32 * raw.shape[1], codes=codes, scale=scale, least=least)


def q5_0(raw: Tensor) -> Storage:
    scale, high, codes = pieces(raw, -2, 4, 16)
    return FiveBits(32 * raw.shape[1], codes=codes, high=high, scale=scale)


def wide(raw: Tensor) -> Storage:
    """Q4_K and Q5_K; their scales of 6 bits are unpacked, to 8 more bytes for a block of 256."""
    d, dmin, packed, *high, codes = pieces(
        raw, -2, -2, 12, *([32] if raw.shape[-1] == 176 else []), 128
    )
    low, least, both = packed.split(4, -1)
    scales = torch.cat((low & 63, both & 15 | low >> 2 & 48), -1)
    mins = torch.cat((least & 63, both >> 4 | least >> 2 & 48), -1)
    fifth = dict(zip(("high",), high, strict=False))
    codes = codes.unflatten(-1, (4, 32)).flatten(1, 2)
    return Wide(WIDE * raw.shape[1], codes=codes, scales=scales, mins=mins, d=d, dmin=dmin, **fifth)


def q6_k(raw: Tensor) -> Storage:
    low, high, scales, d = pieces(raw, 128, 64, 16, -2)
    low, high = low.unflatten(-1, (2, 64)).flatten(1, 2), high.unflatten(-1, (2, 32)).flatten(1, 2)
    return SixBits(WIDE * raw.shape[1], low=low, high=high, scales=scales.view(torch.int8), d=d)


def gguf_mxfp4(raw: Tensor) -> Storage:
    exponent, codes = pieces(raw, 1, 16)
    return mxfp4(codes, exponent.squeeze(-1))


def dense(dtype: torch.dtype) -> Callable[[Tensor], Storage]:
    return lambda raw: Dense(raw.shape[1], values=raw.view(dtype).squeeze(-1))


@dataclass(frozen=True)
class Block:
    """A type of tensor of GGUF: its elements and bytes in a block, and what makes a storage."""

    name: str
    elements: int
    size: int
    read: Callable[[Tensor], Storage]


BLOCKS = {  # by GGUF's number of the type
    0: Block("F32", 1, 4, dense(torch.float32)),
    1: Block("F16", 1, 2, dense(torch.float16)),
    2: Block("Q4_0", 32, 18, q4_0),
    3: Block("Q4_1", 32, 20, q4_1),
    6: Block("Q5_0", 32, 22, q5_0),
    8: Block("Q8_0", 32, 34, q8_0),
    12: Block("Q4_K", WIDE, 144, wide),
    13: Block("Q5_K", WIDE, 176, wide),
    14: Block("Q6_K", WIDE, 210, q6_k),
    30: Block("BF16", 1, 2, dense(torch.bfloat16)),
    39: Block("MXFP4", 32, 17, gguf_mxfp4),
}
