"""Forms that no suite has, against eager: `python -m bench.sweep`, on one thread.

python -m bench.sweep conv pool --json sweep.json     # those whose names have one of the words
A ratio under 0.8 is a cliff; so is an error. The best of five rounds in turn, in one process: weft
runs on torch's own threads.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import weft
from weft.cli.output import show, table
from weft.cli.suite_text import machine

ROUNDS, SECONDS, CLIFF = 5, 0.015, 0.8
rand = torch.randn


def idx(most: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, most, shape)


def attend(x: torch.Tensor) -> torch.Tensor:
    return ATTENTION(x, x, x)[0]


ATTENTION = nn.MultiheadAttention(64, 4, batch_first=True).eval()

PROGRAMS: dict[str, tuple[Any, ...]] = {
    "convT2d s2 k4": (nn.ConvTranspose2d(64, 32, 4, 2, 1), rand(2, 64, 28, 28)),
    "convT2d s2 k3 op1": (
        nn.ConvTranspose2d(64, 32, 3, 2, 1, output_padding=1),
        rand(2, 64, 28, 28),
    ),
    "convT2d s3 k3": (nn.ConvTranspose2d(32, 32, 3, 3), rand(2, 32, 20, 20)),
    "convT2d s2 k2": (nn.ConvTranspose2d(128, 64, 2, 2), rand(1, 128, 32, 32)),
    "convT2d grouped": (nn.ConvTranspose2d(64, 64, 4, 2, 1, groups=8), rand(2, 64, 28, 28)),
    "convT2d depthwise": (nn.ConvTranspose2d(64, 64, 4, 2, 1, groups=64), rand(2, 64, 28, 28)),
    "convT2d dil": (nn.ConvTranspose2d(32, 32, 3, 2, 2, dilation=2), rand(2, 32, 28, 28)),
    "convT1d s4": (nn.ConvTranspose1d(128, 64, 8, 4, 2), rand(2, 128, 200)),
    "convT3d s2": (nn.ConvTranspose3d(16, 16, 4, 2, 1), rand(1, 16, 8, 16, 16)),
    "conv1d k9": (nn.Conv1d(64, 64, 9, padding=4), rand(4, 64, 500)),
    "conv1d s2": (nn.Conv1d(64, 128, 3, 2, 1), rand(4, 64, 500)),
    "conv1d dw": (nn.Conv1d(256, 256, 5, padding=2, groups=256), rand(4, 256, 300)),
    "conv3d": (nn.Conv3d(16, 32, 3, padding=1), rand(1, 16, 16, 32, 32)),
    "conv3d s2": (nn.Conv3d(16, 32, 3, 2, 1), rand(1, 16, 16, 32, 32)),
    "conv2d grouped": (nn.Conv2d(64, 64, 3, padding=1, groups=4), rand(2, 64, 28, 28)),
    "conv2d 5x5": (nn.Conv2d(32, 64, 5, padding=2), rand(2, 32, 28, 28)),
    "conv2d 7x7 14": (nn.Conv2d(64, 64, 7, padding=3), rand(1, 64, 14, 14)),
    "conv2d 3x3 7x7": (nn.Conv2d(512, 512, 3, padding=1), rand(1, 512, 7, 7)),
    "conv2d 3x3 14x14": (nn.Conv2d(256, 256, 3, padding=1), rand(1, 256, 14, 14)),
    "conv2d dil2": (nn.Conv2d(64, 64, 3, padding=2, dilation=2), rand(1, 64, 28, 28)),
    "conv2d 1x1": (nn.Conv2d(256, 64, 1), rand(1, 256, 56, 56)),
    "conv2d 1x1 s2": (nn.Conv2d(256, 512, 1, 2), rand(1, 256, 28, 28)),
    "conv2d cl": (
        nn.Conv2d(64, 64, 3, padding=1).to(memory_format=torch.channels_last),
        rand(1, 64, 56, 56).to(memory_format=torch.channels_last),
    ),
    "patch 16": (nn.Conv2d(3, 384, 16, 16), rand(1, 3, 224, 224)),
    "dw s2": (nn.Conv2d(96, 96, 3, 2, 1, groups=96), rand(1, 96, 56, 56)),
    "dw 7x7": (nn.Conv2d(96, 96, 7, padding=3, groups=96), rand(1, 96, 56, 56)),
    "maxpool2 2": (nn.MaxPool2d(2), rand(4, 64, 56, 56)),
    "maxpool1d": (nn.MaxPool1d(3, 2), rand(8, 64, 500)),
    "maxpool3d": (nn.MaxPool3d(2), rand(2, 16, 16, 32, 32)),
    "avgpool 3 s2": (nn.AvgPool2d(3, 2, 1), rand(2, 64, 56, 56)),
    "avgpool1d": (nn.AvgPool1d(4), rand(8, 64, 500)),
    "avgpool3d": (nn.AvgPool3d(2), rand(2, 16, 16, 32, 32)),
    "lppool": (nn.LPPool2d(2, 3, 2), rand(2, 64, 56, 56)),
    "adapt avg 7": (nn.AdaptiveAvgPool2d(7), rand(2, 64, 56, 56)),
    "adapt max 7": (nn.AdaptiveMaxPool2d(7), rand(2, 64, 56, 56)),
    "adapt avg 5": (nn.AdaptiveAvgPool2d(5), rand(2, 64, 33, 47)),
    "maxpool idx": (lambda x: F.max_pool2d(x, 2, return_indices=True), rand(2, 64, 56, 56)),
    "unfold": (lambda x: F.unfold(x, 3, padding=1), rand(2, 32, 28, 28)),
    "fold": (lambda x: F.fold(x, (28, 28), 3, padding=1), rand(2, 288, 784)),
    "pixshuf": (nn.PixelShuffle(2), rand(2, 64, 56, 56)),
    "upsample near": (lambda x: F.interpolate(x, scale_factor=2), rand(2, 64, 28, 28)),
    "upsample bil": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        rand(2, 64, 28, 28),
    ),
    "upsample bic": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        rand(1, 32, 28, 28),
    ),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        rand(2, 32, 28, 28),
        rand(2, 28, 28, 2).clamp(-1, 1),
    ),
    "scatter_add small": (
        lambda x, i, s: x.scatter_add(0, i, s),
        rand(1000, 64),
        idx(1000, 400, 64),
        rand(400, 64),
    ),
    "scatter_add flat": (
        lambda x, i, s: x.scatter_add(0, i, s),
        rand(10000),
        idx(10000, 400000),
        rand(400000),
    ),
    "index_add": (
        lambda x, i, s: x.index_add(0, i, s),
        rand(1000, 64),
        idx(1000, 4000),
        rand(4000, 64),
    ),
    "scatter": (
        lambda x, i, s: x.scatter(1, i, s),
        rand(1000, 64),
        idx(64, 1000, 64),
        rand(1000, 64),
    ),
    "index_put acc": (
        lambda x, i, s: x.index_put((i,), s, accumulate=True),
        rand(1000, 64),
        idx(1000, 4000),
        rand(4000, 64),
    ),
    "gather": (lambda x, i: x.gather(1, i), rand(1000, 512), idx(512, 1000, 512)),
    "index": (lambda x, i: x[i], rand(10000, 64), idx(10000, 4000)),
    "index cols": (lambda x, i: x[:, i], rand(1000, 512), idx(512, 200)),
    "embedding": (nn.Embedding(10000, 64), idx(10000, 32, 50)),
    "embbag mean": (nn.EmbeddingBag(10000, 64, mode="mean"), idx(10000, 256, 20)),
    "embbag max": (nn.EmbeddingBag(10000, 64, mode="max"), idx(10000, 256, 20)),
    "cumsum row": (lambda x: x.cumsum(1), rand(1000, 500)),
    "cumsum flat": (lambda x: x.cumsum(0), rand(500000)),
    "cumprod": (lambda x: x.cumprod(1), rand(1000, 500)),
    "cummax": (lambda x: x.cummax(1), rand(1000, 500)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), rand(1000, 500)),
    "sort": (lambda x: x.sort(1), rand(1000, 500)),
    "topk": (lambda x: x.topk(10, 1), rand(1000, 500)),
    "argmax": (lambda x: x.argmax(1), rand(1000, 500)),
    "argmax0": (lambda x: x.argmax(0), rand(1000, 500)),
    "median": (lambda x: x.median(1), rand(300, 500)),
    "var": (lambda x: x.var(1), rand(1000, 500)),
    "norm": (lambda x: x.norm(), rand(1000, 500)),
    "any": (lambda x: (x > 3).any(1), rand(1000, 500)),
    "prod": (lambda x: x.prod(1), rand(1000, 500)),
    "logsumexp": (lambda x: x.logsumexp(1), rand(1000, 500)),
    "std0": (lambda x: x.std(0), rand(1000, 500)),
    "amax mid": (lambda x: x.amax(1), rand(50, 100, 100)),
    "ln": (nn.LayerNorm(500), rand(1000, 500)),
    "bn train": (lambda x: F.batch_norm(x, None, None, training=True), rand(4, 64, 28, 28)),
    "gn": (nn.GroupNorm(8, 64), rand(4, 64, 28, 28)),
    "in": (nn.InstanceNorm2d(64), rand(4, 64, 28, 28)),
    "lrn": (nn.LocalResponseNorm(5), rand(4, 64, 28, 28)),
    "ce": (lambda x, i: F.cross_entropy(x, i), rand(500, 1000), idx(1000, 500)),
    "nll2d": (lambda x, i: F.cross_entropy(x, i), rand(4, 21, 64, 64), idx(21, 4, 64, 64)),
    "bce": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y),
        rand(1000, 500),
        torch.rand(1000, 500),
    ),
    "ctc": (
        lambda x, i: F.ctc_loss(x.log_softmax(2), i, torch.full((8,), 50), torch.full((8,), 10)),
        rand(50, 8, 30),
        idx(29, 8, 10) + 1,
    ),
    "kl": (
        lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
        rand(1000, 500),
        rand(1000, 500),
    ),
    "huber": (F.huber_loss, rand(1000, 500), rand(1000, 500)),
    "cos sim": (F.cosine_similarity, rand(1000, 500), rand(1000, 500)),
    "cdist": (torch.cdist, rand(300, 64), rand(400, 64)),
    "triplet": (F.triplet_margin_loss, rand(300, 64), rand(300, 64), rand(300, 64)),
    "lstm": (nn.LSTM(64, 64, batch_first=True), rand(8, 30, 64)),
    "gru": (nn.GRU(64, 64, batch_first=True), rand(8, 30, 64)),
    "mha": (attend, rand(4, 50, 64)),
    "roll": (lambda x: x.roll(3, 1), rand(1000, 500)),
    "flip": (lambda x: x.flip(1), rand(1000, 500)),
    "tril": (lambda x: x.tril(), rand(1000, 500)),
    "cat": (lambda x, y: torch.cat((x, y), 1), rand(1000, 500), rand(1000, 300)),
    "stack": (lambda x, y: torch.stack((x, y), 2), rand(1000, 500), rand(1000, 500)),
    "repeat": (lambda x: x.repeat(2, 3), rand(300, 200)),
    "repint": (lambda x: x.repeat_interleave(3, 1), rand(300, 200)),
    "permute3": (lambda x: x.permute(2, 0, 1).contiguous(), rand(60, 70, 80)),
    "where": (lambda x, y: torch.where(x > 0, x, y), rand(1000, 500), rand(1000, 500)),
    "masked_fill": (lambda x, y: x.masked_fill(y > 0, 0.0), rand(1000, 500), rand(1000, 500)),
    "bmm odd": (torch.bmm, rand(30, 33, 65), rand(30, 65, 17)),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), rand(8, 100, 64), rand(8, 90, 64)),
    "bilinear": (nn.Bilinear(32, 32, 16), rand(100, 32), rand(100, 32)),
    "mv": (torch.mv, rand(1000, 500), rand(500)),
    "outer": (torch.outer, rand(1000), rand(500)),
    "kron": (torch.kron, rand(20, 20), rand(30, 30)),
    "pow": (lambda x: x.abs() ** 2.3, rand(1000, 500)),
    "erf": (torch.erf, rand(1000, 500)),
    "gelu": (F.gelu, rand(1000, 500)),
    "silu": (F.silu, rand(1000, 500)),
    "softplus": (F.softplus, rand(1000, 500)),
    "atan2": (torch.atan2, rand(1000, 500), rand(1000, 500)),
    "int div": (lambda x, y: x // y, idx(1000, 1000, 500), idx(50, 1000, 500) + 1),
    "float rem": (lambda x, y: x % y, rand(1000, 500), rand(1000, 500)),
    "bucketize": (lambda x, b: torch.bucketize(x, b), rand(1000, 500), rand(64).sort()[0]),
    "one_hot": (lambda i: F.one_hot(i, 100), idx(100, 1000)),
    "histc": (lambda x: torch.histc(x, 50), rand(100000)),
    "f64 mm": (lambda x, y: x @ y, rand(256, 256).double(), rand(256, 256).double()),
    "bf16 softmax": (lambda x: x.softmax(1), rand(1000, 500).bfloat16()),
    "f16 ln": (nn.LayerNorm(500).half(), rand(1000, 500).half()),
    "i32 sum": (lambda x: x.sum(1), idx(100, 1000, 500).int()),
    "bool sum": (lambda x: (x > 0).sum(), rand(1000, 500)),
}


def seconds(function: Callable[..., Any], args: tuple[Any, ...], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function(*args)
    return (time.perf_counter() - start) / calls


def measure(function: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    """Microseconds of eager and of weft, and what ran as ATen's."""
    function = function.eval() if isinstance(function, nn.Module) else function
    compiled = weft.compile(function)
    with torch.no_grad():
        compiled(*args)
        calls = max(1, int(SECONDS / max(seconds(f, args, 2) for f in (function, compiled))))
        rounds = [[seconds(f, args, calls) for f in (function, compiled)] for _ in range(ROUNDS)]
    eager, own = (min(times) * 1e6 for times in zip(*rounds, strict=True))
    report = weft.report(compiled)
    externs = [*dict.fromkeys(op for op, _, _ in report.externs), *report.reasons]
    return {"eager_us": eager, "weft_us": own, "ratio": eager / own, "externs": externs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", default=[""])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write all figures")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = {
        name: measure(function, args)
        for name, (function, *args) in PROGRAMS.items()
        if any(word in name for word in given.words)
    }
    cells = [
        [name, f"{r['eager_us']:.1f}", f"{r['weft_us']:.1f}", f"{r['ratio']:.2f}",
         "CLIFF" if r["ratio"] < CLIFF else "", " ".join(r["externs"])[:40]]
        for name, r in rows.items()
    ]  # fmt: skip
    columns = ["program", "eager us", "weft us", "ratio", "", "in ATen"]
    show(table(f"{len(rows)} programs, {given.threads} threads", columns, cells))
    if given.json:
        facts = {"machine": machine(on_cpu=True), "threads": given.threads, "programs": rows}
        given.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
