"""Positions in bulletformat, 32 bytes each, and the batches that a network sees of them.

batches = Batches(opened("train.bf"), size=4096, seed=0)
own, other, bucket, target = batches(17)    # i32[4096, 32] twice, i64[4096, 1], f32[4096, 1]

A record is relative to the side to move: squares count from its first rank, and it is "own". A
piece's input is 64 * kind + square, 384 more for the other side's; the second list is the same from
the other side. Lists are filled up with the number beyond all inputs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from weft.core.errors import WeftError

RECORD = np.dtype(
    [
        ("occupied", "<u8"),  # a bit for each square
        ("pieces", "u1", 16),  # by square, a nibble each, the low one first: kind + 8 * other's
        ("score", "<i2"),  # centipawns
        ("result", "u1"),  # 0 lost, 1 drawn, 2 won
        ("king", "u1"),
        ("other_king", "u1"),  # as the other side counts squares
        ("unused", "u1", 3),
    ]
)
PIECES, INPUTS, SCALE = 32, 768, 400.0
OUT_BUCKETS = 8

_code = np.arange(16)
OWN = ((_code >> 3) * 384 + (_code & 7) * 64).astype(np.int16)
OTHER = ((_code >> 3 ^ 1) * 384 + (_code & 7) * 64).astype(np.int16)


def opened(path: str | Path) -> np.ndarray:
    """The records of a file, as a map of it; WeftError where it is none, empty or cut short."""
    try:
        size = Path(path).stat().st_size
        if size == 0 or size % RECORD.itemsize:
            whole, rest = divmod(size, RECORD.itemsize)
            what = f"ends {rest} bytes into record {whole}" if rest else "is empty"
            raise WeftError(f"{path} {what}: a file of positions has {RECORD.itemsize} bytes each")
        return np.memmap(path, RECORD, "r")
    except OSError as error:
        raise WeftError(f"cannot read positions from {path}: {error.strerror}") from None


def king_bucket(king: np.ndarray, buckets: int) -> np.ndarray:
    """Of 1 all kings are one; of 2 by the half of the board, left or right; of 4 also those on
    their first rank apart."""
    right, up = (king & 7) >> 2, (king > 7).astype(king.dtype)
    return {1: np.zeros_like(king), 2: right, 4: right + 2 * up}[buckets]


def lists(records: np.ndarray, king_buckets: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs from both sides, i32[n, 32], and the counts of pieces, i64[n].

    WeftError for a record that is no position.
    """
    n = len(records)
    squares = np.ascontiguousarray(records["occupied"]).view(np.uint8).reshape(n, 8)
    bits = np.unpackbits(squares, axis=1, bitorder="little")
    counts = bits.sum(1, dtype=np.int64)
    live = np.arange(PIECES) < counts[:, None]
    nibbles = np.empty((n, PIECES), np.uint8)
    nibbles[:, ::2], nibbles[:, 1::2] = records["pieces"] & 15, records["pieces"] >> 4
    kings = records["king"].astype(np.int32), records["other_king"].astype(np.int32)
    wrong = (counts > PIECES) | (counts < 2) | (records["result"] > 2)
    wrong |= (kings[0] > 63) | (kings[1] > 63) | ((nibbles & 7 > 5) & live).any(1)
    if wrong.any():
        raise WeftError(f"record {wrong.argmax()} of {n} read is no position: the file is damaged")
    square, code = (np.flatnonzero(bits) & 63).astype(np.int16), nibbles[live]
    found: list[np.ndarray] = []
    for base, at, king in ((OWN, square, kings[0]), (OTHER, square ^ 56, kings[1])):
        inputs = np.full((n, PIECES), INPUTS * king_buckets, np.int32)
        inputs[live] = base[code] + at
        if king_buckets > 1:
            inputs += np.where(live, INPUTS * king_bucket(king, king_buckets)[:, None], 0)
        found.append(inputs)
    return found[0], found[1], counts


def out_bucket(counts: np.ndarray) -> np.ndarray:
    return (counts - 2) // (PIECES // OUT_BUCKETS)


def material(records: np.ndarray) -> np.ndarray:
    """Own less the other's, in pawns, f64[n]."""
    own, _, _ = lists(records)
    values = np.array([1, 3, 3, 5, 9, 0, -1, -3, -3, -5, -9, 0, 0], dtype=np.float64)
    return values[own // 64].sum(1)


def targets(records: np.ndarray, share: float) -> np.ndarray:
    """What is to be predicted: the score as a chance, with that share of the game's result."""
    chance = 1 / (1 + np.exp(-records["score"] / SCALE))
    return share * records["result"] / 2 + (1 - share) * chance


class Batches:
    """Batches by number. Each epoch has an order of its own, and leaves out what fills no batch."""

    def __init__(
        self,
        records: np.ndarray,
        size: int,
        seed: int = 0,
        king_buckets: int = 1,
        share: float = 0.25,
    ) -> None:
        self.records, self.size, self.seed = records, size, seed
        self.king_buckets, self.share = king_buckets, share
        self.count = len(records) // size
        if not self.count:
            raise WeftError(f"{len(records)} positions fill no batch of {size}")
        self.epoch, self.order = -1, np.empty(0, np.int64)

    def __call__(self, place: int) -> tuple[Tensor, ...]:
        epoch, i = divmod(place, self.count)
        if epoch != self.epoch:
            self.order = np.random.default_rng((self.seed, epoch)).permutation(len(self.records))
            self.epoch = epoch
        return self.of(self.records[self.order[i * self.size : (i + 1) * self.size]])

    def of(self, records: np.ndarray) -> tuple[Tensor, ...]:
        own, other, counts = lists(records, self.king_buckets)
        wanted = targets(records, self.share).astype(np.float32)[:, None]
        arrays = own, other, out_bucket(counts)[:, None], wanted
        return tuple(torch.from_numpy(array) for array in arrays)

    def in_order(self) -> list[tuple[Tensor, ...]]:
        """All records, the last batch smaller."""
        parts = range(0, len(self.records), self.size)
        return [self.of(self.records[i : i + self.size]) for i in parts]
