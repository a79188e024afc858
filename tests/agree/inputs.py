"""Inputs of the corpus, described where they are used and made when a test runs.

f32(3, 37)                     # normal values from a fixed seed
f32(3, 37).t()                 # any method of a tensor: what it would give
i64(5, below=7), f32(9, of=SPECIALS), boolean(4)
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

SPECIALS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -2.5, 1e30, 1e-40)


@dataclass(frozen=True)
class Input:
    """A tensor to be made: dtype, shape, its values, and the methods to call on it then."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    below: int | None = None
    of: tuple[float, ...] = ()
    methods: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def make(self, seed: int) -> torch.Tensor:
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            tensor = self.values()
        for name, args in self.methods:
            tensor = tensor[args[0]] if name == "index" else getattr(tensor, name)(*args)
        return tensor

    def values(self) -> torch.Tensor:
        if self.of:
            flat = torch.tensor(self.of, dtype=torch.float64)
            return (
                flat.repeat(math.prod(self.shape) // len(self.of) + 1)[: math.prod(self.shape)]
                .reshape(self.shape)
                .to(self.dtype)
            )
        if self.below is not None:
            return torch.randint(0, self.below, self.shape).to(self.dtype)
        if self.dtype is torch.bool:
            return torch.randint(0, 2, self.shape).bool()
        if self.dtype.is_floating_point:
            return torch.randn(self.shape, dtype=torch.float64).to(self.dtype)
        low = 0 if self.dtype is torch.uint8 else -100
        return torch.randint(low, 100, self.shape).to(self.dtype)

    def __getattr__(self, name: str) -> Callable[..., Input]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self.then(name, *args)

    def __getitem__(self, at: Any) -> Input:
        return self.then("index", at)

    def then(self, name: str, *args: Any) -> Input:
        methods = (*self.methods, (name, args))
        return Input(self.dtype, self.shape, self.below, self.of, methods)


def tensor(dtype: torch.dtype, *shape: int, below: int | None = None, of: Any = ()) -> Input:
    return Input(dtype, shape, below, of)


f16, bf16, f32, f64 = (
    partial(tensor, d) for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
)
i8, i16, i32, i64 = (
    partial(tensor, d) for d in (torch.int8, torch.int16, torch.int32, torch.int64)
)
u8, boolean = partial(tensor, torch.uint8), partial(tensor, torch.bool)


@dataclass(frozen=True)
class Case:
    """A program, its arguments (tensors to be made, or values), and whether it may call ATen."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    externs: bool = False

    def make(self) -> list[Any]:
        seed = zlib.crc32(self.name.encode())
        return [a.make(seed + i) if isinstance(a, Input) else a for i, a in enumerate(self.args)]


def cases(**rows: tuple[Any, ...]) -> list[Case]:
    """name=(function, argument, ...)"""
    return [Case(name, fn, args) for name, (fn, *args) in rows.items()]
