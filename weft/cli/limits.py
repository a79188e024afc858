"""Measures the machine's limits by small C loops, and counts the work of a program: a roofline.

limits = measure(threads=2)
work = count(load(SourceSpec(text="torch.randn(512, 512) @ torch.randn(512, 512)")))
limits.seconds(work)            # no program that does this work takes less
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from weft.cli.check import call, copied
from weft.cli.program import Source, tensors
from weft.config import config
from weft.runtime.toolchain import open_toolchain

C_FILE = Path(__file__).parent / "limits.c"
SIZES = tuple(1 << k for k in (16, 19, 22, 25, 28))  # bytes moved: from the first cache to memory
TRIALS = 3


@dataclass(frozen=True)
class Work:
    """What a program has to do; `bf16` says whether all floats that it reads are bf16.

    `flops` count a multiply-add as two, `bytes` each byte of inputs, weights and outputs once.
    """

    flops: int
    bytes: int
    bf16: bool = False


@dataclass(frozen=True)
class Limits:
    """GFLOP/s on one thread and on all threads, and GB/s of a copy by the bytes that it moves.

    bf16 figures are 0 where a CPU does not compute in bf16.
    """

    threads: int
    gflops_one_thread: float
    gflops: float
    bf16_gflops_one_thread: float
    bf16_gflops: float
    copy_gb_per_s: Mapping[int, float]

    def bandwidth(self, moved: int) -> float:
        """GB/s for `moved` bytes, by log-log interpolation between the measured sizes."""
        sizes = sorted(self.copy_gb_per_s)
        rates = [self.copy_gb_per_s[size] for size in sizes]
        return float(np.exp(np.interp(np.log(max(moved, 1)), np.log(sizes), np.log(rates))))

    def seconds(self, work: Work) -> float:
        """The roofline (Williams et al., 2009): the longer of the times for flops and for bytes."""
        peak = self.bf16_gflops if work.bf16 and self.bf16_gflops else self.gflops
        return max(work.flops / peak, work.bytes / self.bandwidth(work.bytes)) * 1e-9

    def percent(self, work: Work, ms: float | None) -> float | None:
        """The least possible time in percent of a measured time."""
        return self.seconds(work) / (ms * 1e-3) * 100 if ms else None

    def best_of(self, other: Limits) -> Limits:
        """The higher figures of two measurements: other processes can only lower a figure."""
        figures = ("gflops_one_thread", "gflops", "bf16_gflops_one_thread", "bf16_gflops")
        higher = {f: max(getattr(self, f), getattr(other, f)) for f in figures}
        copy = {
            size: max(rate, other.copy_gb_per_s[size]) for size, rate in self.copy_gb_per_s.items()
        }
        return Limits(self.threads, **higher, copy_gb_per_s=copy)


def library() -> ctypes.CDLL:
    """Compiles and loads the loops of limits.c."""
    text = C_FILE.read_text()
    path, _ = open_toolchain(config.cache).shared(text, {"limits": text}, {})
    made = ctypes.CDLL(str(path))
    made.limits_fma.argtypes = [ctypes.c_int, ctypes.c_int]
    made.limits_copy.argtypes = made.limits_read.argtypes = [ctypes.c_int, ctypes.c_long]
    made.limits_dot_i8.argtypes = [ctypes.c_int]
    for name in ("fma", "copy", "read", "dot_i8"):
        getattr(made, f"limits_{name}").restype = ctypes.c_double
    made.limits_nothing.argtypes, made.limits_nothing.restype = [], None
    return made


def measure(threads: int) -> Limits:
    """Runs the loops, and returns the best of TRIALS trials; half a minute at most."""
    loops = library()

    def best(function: Any, *arguments: int) -> float:
        return max(float(function(*arguments)) for _ in range(TRIALS))

    return Limits(
        threads,
        gflops_one_thread=best(loops.limits_fma, 1, 0),
        gflops=best(loops.limits_fma, threads, 0),
        bf16_gflops_one_thread=best(loops.limits_fma, 1, 1),
        bf16_gflops=best(loops.limits_fma, threads, 1),
        copy_gb_per_s={size: best(loops.limits_copy, threads, size) for size in SIZES},
    )


@dataclass(frozen=True)
class Peaks:
    """GB/s of reading from memory, and G operations a second of products of each kind.

    Those of int8 are the dot products of vectors (VNNI), not tiles; 0 where a CPU has none.
    """

    read: float
    f32: float
    bf16: float
    int8: float
    int8_one_thread: float

    def best_of(self, other: Peaks) -> Peaks:
        return Peaks(*map(max, astuple(self), astuple(other)))


def peaks(threads: int, last_cache: int) -> Peaks:
    """Measures them, in a second or two; what is read is four times the last cache or more."""
    loops = library()
    rates = (
        [loops.limits_read(threads, max(1 << 30, 4 * last_cache)), loops.limits_fma(threads, 0),
         loops.limits_fma(threads, 1), loops.limits_dot_i8(threads), loops.limits_dot_i8(1)]
        for _ in range(TRIALS)
    )  # fmt: skip
    return Peaks(*map(max, *rates))


# ---- the work of a program


def attention_flops(
    query: Any, key: Any, value: Any, dropout: float = 0.0, is_causal: bool = False,
    *_: Any, **__: Any,
) -> int:  # fmt: skip
    """Flops of both products, from the shapes; if causal, only on and below the diagonal."""
    *outer, rows, width = query
    columns = key[-2]
    kept = sum(min(i + 1, columns) for i in range(rows)) if is_causal else rows * columns
    return 2 * math.prod(outer) * kept * (width + value[-1])


def biased_attention_flops(*given: Any, **named: Any) -> int:
    """The same for ops that take a bias and a flag (compute_log_sumexp) after the three tensors."""
    return attention_flops(*given[:3], *given[5:], **named)


ATEN = torch.ops.aten
FORMULAS = {
    ATEN._scaled_dot_product_flash_attention_for_cpu: attention_flops,
    ATEN._scaled_dot_product_flash_attention: attention_flops,
    ATEN._scaled_dot_product_efficient_attention: biased_attention_flops,
    ATEN._scaled_dot_product_cudnn_attention: biased_attention_flops,
    ATEN.mv: lambda matrix, *_, **__: 2 * math.prod(matrix),
}


GATHERS = {  # bytes of the first argument that an op reads
    ATEN.embedding.default: lambda weight, indices, *_: indices.numel() * weight[0].nbytes,
    ATEN._embedding_bag.default: lambda w, indices, *_: indices.numel() * w[0].nbytes,
    ATEN._embedding_bag_forward_only.default: lambda w, i, *_: i.numel() * w[0].nbytes,
    ATEN.index_select.default: lambda x, dim, i, *_: i.numel() * x.select(dim, 0).nbytes,
    ATEN.gather.default: lambda x, dim, indices, *_: indices.numel() * x.element_size(),
}


class Gathered(TorchDispatchMode):
    """Counts the bytes that a program reads of each tensor: of an embedding only some rows."""

    def __init__(self) -> None:
        super().__init__()
        self.gathered: dict[int, int] = {}
        self.whole: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read = [tensor.data_ptr() for tensor in tensors((args, kwargs))]
        if func in GATHERS:
            place = read.pop(0)
            self.gathered[place] = self.gathered.get(place, 0) + GATHERS[func](*args)
        self.whole.update(read)
        return func(*args, **(kwargs or {}))

    def bytes_read(self, tensor: torch.Tensor) -> int:
        place, size = tensor.data_ptr(), storage_bytes(tensor)
        if place in self.whole or place not in self.gathered:
            return size
        return min(self.gathered[place], size)


def storage_bytes(tensor: torch.Tensor) -> int:
    """The bytes of a tensor in memory; an expanded tensor has fewer than its elements."""
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())


def count(source: Source) -> Work:
    """Counts the work in two eager runs.

    Flops are torch's own count; bytes are those of inputs, parameters, buffers and outputs.
    """
    function = copied(source.callable)
    gathered = Gathered()
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=FORMULAS) as flops:
        out = call(source, function)
    with torch.no_grad(), gathered:
        function(*source.args, **source.kwargs)
    given = tensors((source.args, source.kwargs))
    if isinstance(function, nn.Module):
        given += [*function.parameters(), *function.buffers()]
    read = {v.data_ptr(): v for v in given}
    floats = {v.dtype for v in read.values() if v.is_floating_point()}
    written = {v.data_ptr(): v for v in tensors(out)}
    moved = sum(map(gathered.bytes_read, read.values())) + sum(map(storage_bytes, written.values()))
    return Work(flops.get_total_flops(), moved, floats == {torch.bfloat16})
