"""The network: two views of a position through one layer, squared and clipped, then one number.

network = Network(width=256, king_buckets=4, factorised=True)
chance_loss(network, own, other, bucket, target)    # f32[]
integers = exported(network)                        # i16, for eval.c and for `evaluated`

Training rounds weights as the export does, and passes gradients straight through.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from examples.nnue.positions import INPUTS, OUT_BUCKETS, PIECES, SCALE, lists, out_bucket
from weft.core.errors import WeftError

IN_UNIT, OUT_UNIT = 255, 64  # of i16: 255 is 1.0 in the first layer, 64 in the last
MOST = 1.98  # of a weight in the last layer: 127 / 64
MAGIC = 0x57454654


def rounded(x: Tensor, unit: int) -> Tensor:
    return x + ((x * unit).round() / unit - x).detach()


class Network(nn.Module):
    def __init__(self, width: int, king_buckets: int = 1, factorised: bool = False) -> None:
        super().__init__()
        self.width, self.king_buckets = width, king_buckets
        self.columns = nn.Parameter(torch.randn(king_buckets * INPUTS, width) / PIECES**0.5 / 2)
        self.shared = nn.Parameter(torch.zeros(INPUTS, width)) if factorised else None
        self.bias = nn.Parameter(torch.zeros(width))
        self.out = nn.Linear(2 * width, OUT_BUCKETS)

    def table(self) -> Tensor:
        """f32[king_buckets * 768, width]; one that is factorised is a sum with what all share."""
        if self.shared is None:
            return self.columns
        each = self.columns.view(self.king_buckets, INPUTS, self.width)
        return (each + self.shared).view(-1, self.width)

    def forward(self, own: Tensor, other: Tensor, bucket: Tensor) -> Tensor:
        """own, other: i32[n, 32], bucket: i64[n, 1] -> f32[n, 1], 1.0 for 400 centipawns."""
        table = F.pad(rounded(self.table(), IN_UNIT), (0, 0, 0, 1))  # a row of zeros fills up lists
        bias = rounded(self.bias, IN_UNIT)
        views = [F.embedding_bag(x, table, mode="sum") + bias for x in (own, other)]
        hidden = torch.cat(views, 1).clamp(0, 1).square()
        weight = rounded(self.out.weight, OUT_UNIT)
        return F.linear(hidden, weight, rounded(self.out.bias, IN_UNIT * OUT_UNIT)).gather(
            1, bucket
        )


def chance_loss(
    network: nn.Module, own: Tensor, other: Tensor, bucket: Tensor, target: Tensor
) -> Tensor:
    return F.mse_loss(network(own, other, bucket).sigmoid(), target)


# --- in integers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Integers:
    """All i16: columns[inputs, width], bias[width], weight[buckets, 2 * width], last[buckets]."""

    columns: np.ndarray
    bias: np.ndarray
    weight: np.ndarray
    last: np.ndarray

    def save(self, path: str | Path) -> None:
        """Four i32, then the arrays, in the machine's order of bytes."""
        inputs, width = self.columns.shape
        head = np.array([MAGIC, inputs // INPUTS, width, len(self.last)], np.int32)
        arrays = self.columns, self.bias, self.weight, self.last
        Path(path).write_bytes(head.tobytes() + b"".join(a.tobytes() for a in arrays))


def integer(x: Tensor, unit: int, name: str) -> np.ndarray:
    found = (x.detach() * unit).round().numpy()
    if not np.all(np.abs(found) <= 32767):
        raise WeftError(
            f"{name} * {unit} does not fit 16 bits: its largest is {np.abs(found).max():g}"
        )
    return found.astype(np.int16)


def exported(network: Network) -> Integers:
    """The weights in integers; WeftError where one, or a sum of a layer, can overflow."""
    columns = integer(network.table(), IN_UNIT, "columns")
    bias = integer(network.bias, IN_UNIT, "bias")
    heaviest = np.sort(np.abs(columns.astype(np.int64)), 0)[-PIECES:].sum(0) + np.abs(bias)
    if heaviest.max() > 32767:
        raise WeftError(f"a sum of {PIECES} columns may reach {heaviest.max()}, beyond 16 bits")
    weight = integer(network.out.weight, OUT_UNIT, "out.weight")
    return Integers(
        columns, bias, weight, integer(network.out.bias, IN_UNIT * OUT_UNIT, "out.bias")
    )


def evaluated(net: Integers, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The integer model: sums in units of 1 / 16320, i64[n], and centipawns, i64[n]."""
    own, other, counts = lists(records, len(net.columns) // INPUTS)
    table = np.concatenate([net.columns, np.zeros_like(net.columns[:1])]).astype(np.int64)
    bucket, sums = out_bucket(counts), np.zeros(len(records), np.int64)
    for x, weight in zip((own, other), np.split(net.weight.astype(np.int64), 2, 1), strict=True):
        view = np.stack([table[row].sum(0) for row in x]) + net.bias
        sums += (view.clip(0, IN_UNIT) ** 2 * weight[bucket]).sum(1)
    total = truncated(sums, IN_UNIT) + net.last[bucket]
    return total, truncated(total * int(SCALE), IN_UNIT * OUT_UNIT)


def truncated(x: np.ndarray, by: int) -> np.ndarray:
    """Divided as C divides integers: towards 0."""
    return np.sign(x) * (np.abs(x) // by)
