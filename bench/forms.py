"""Programs that no suite has: every form of an op, odd sizes, long and short axes, gradients.

forms()["conv2d 3x3 s2 64-128@28"]()         # (function, *arguments), made when it is asked for
A name says what is in it: `grad` is of a forward and a backward pass, dtypes are f32 unless named,
and a shape is written 4x64x56x56.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from weft.library.calls import TORCH_DTYPES

Form = Callable[[], tuple[Any, ...]]
Named = Iterator[tuple[str, Form]]


def rand(*shape: int, dtype: str = "f32") -> torch.Tensor:
    """Of a normal distribution; integers from 0 to 99."""
    kind = TORCH_DTYPES[dtype]
    if kind.is_floating_point:
        return torch.randn(shape, dtype=kind)
    return torch.randint(0, 100, shape).to(kind)


def idx(most: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, most, shape)


def told(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def taken(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "f32") -> Form:
    """The function on random tensors of these shapes."""
    return lambda: (function, *(rand(*shape, dtype=dtype) for shape in shapes))


def graded(form: Form) -> Form:
    """Its forward and backward pass, to all arguments and parameters that are floats."""

    def made() -> tuple[Any, ...]:
        function, *args = form()
        given = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        if isinstance(function, nn.Module):
            given += function.parameters()
        for tensor in given:
            tensor.requires_grad_()
        return Graded(given), function, *args

    return made


class Graded:
    """What runs a function's backward pass after it, with one random gradient."""

    def __init__(self, given: list[torch.Tensor]) -> None:
        self.given, self.weights = given, dict[torch.Size, torch.Tensor]()

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        out = function(*args)
        out = out[0] if isinstance(out, tuple) else out
        if out.shape not in self.weights:
            self.weights[out.shape] = torch.randn_like(out)
        return torch.autograd.grad(out, self.given, self.weights[out.shape])


CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
BACK = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def convolutions() -> Named:
    """(rank, from, to, kernel, stride, padding, dilation, groups, batch, size)"""
    rows = [
        (1, 64, 64, 9, 1, 4, 1, 1, 4, 500), (1, 64, 128, 3, 2, 1, 1, 1, 4, 500),
        (1, 256, 256, 5, 1, 2, 1, 256, 4, 300), (1, 1, 64, 10, 5, 0, 1, 1, 2, 4000),
        (1, 64, 64, 2, 1, 2, 2, 1, 4, 501), (1, 80, 384, 3, 1, 1, 1, 1, 1, 1500),
        (2, 3, 64, 7, 2, 3, 1, 1, 2, 112), (2, 3, 32, 3, 2, 1, 1, 1, 2, 112),
        (2, 3, 16, 3, 1, 1, 1, 1, 4, 32), (2, 1, 32, 5, 1, 2, 1, 1, 16, 28),
        (2, 64, 64, 3, 1, 1, 1, 1, 1, 56), (2, 128, 128, 3, 1, 1, 1, 1, 1, 28),
        (2, 256, 256, 3, 1, 1, 1, 1, 1, 14), (2, 512, 512, 3, 1, 1, 1, 1, 1, 7),
        (2, 64, 128, 3, 2, 1, 1, 1, 1, 56), (2, 256, 512, 3, 2, 1, 1, 1, 1, 14),
        (2, 256, 64, 1, 1, 0, 1, 1, 1, 56), (2, 256, 512, 1, 2, 0, 1, 1, 1, 28),
        (2, 512, 21, 1, 1, 0, 1, 1, 1, 28), (2, 64, 3, 3, 1, 1, 1, 1, 1, 56),
        (2, 32, 64, 5, 1, 2, 1, 1, 2, 28), (2, 64, 64, 3, 1, 2, 2, 1, 1, 28),
        (2, 64, 64, 3, 1, 1, 1, 4, 2, 28), (2, 96, 96, 3, 2, 1, 1, 96, 1, 56),
        (2, 96, 96, 7, 1, 3, 1, 96, 1, 56), (2, 128, 128, 3, 1, 1, 1, 32, 1, 28),
        (2, 33, 65, 3, 1, 1, 1, 1, 1, 31), (2, 3, 384, 16, 16, 0, 1, 1, 1, 224),
        (2, 32, 32, 2, 2, 0, 1, 1, 2, 32), (2, 64, 64, 4, 2, 1, 1, 1, 2, 28),
        (3, 16, 32, 3, 1, 1, 1, 1, 1, 16), (3, 16, 32, 3, 2, 1, 1, 1, 1, 24),
        (3, 3, 16, 3, 1, 1, 1, 1, 1, 24), (3, 32, 32, 1, 1, 0, 1, 1, 1, 16),
    ]  # fmt: skip
    yield from convolved("conv", CONV, rows)


def transposed() -> Named:
    rows = [
        (1, 128, 64, 8, 4, 2, 1, 1, 2, 200), (2, 64, 32, 4, 2, 1, 1, 1, 2, 28),
        (2, 128, 64, 2, 2, 0, 1, 1, 1, 32), (2, 32, 32, 3, 3, 0, 1, 1, 2, 20),
        (2, 64, 64, 3, 1, 1, 1, 1, 1, 28), (2, 64, 64, 4, 2, 1, 1, 8, 2, 28),
        (2, 64, 64, 4, 2, 1, 1, 64, 2, 28), (2, 32, 32, 3, 2, 2, 2, 1, 2, 28),
        (2, 64, 3, 4, 2, 1, 1, 1, 2, 32), (3, 16, 16, 4, 2, 1, 1, 1, 1, 12),
    ]  # fmt: skip
    yield from convolved("convT", BACK, rows)


def convolved(stem: str, modules: Mapping[int, Any], rows: Sequence[tuple[int, ...]]) -> Named:
    for rank, *row in rows:
        name, form = convolution(modules[rank], f"{stem}{rank}d", rank, *row)
        yield name, form
        yield f"grad {name}", graded(form)


def convolution(
    module: Callable[..., nn.Module], stem: str, rank: int, *row: int
) -> tuple[str, Form]:
    ins, outs, kernel, stride, pad, dilation, groups, batch, size = row
    parts = [stem, "x".join([str(kernel)] * rank)]
    parts += [f"s{stride}"] * (stride > 1) + [f"d{dilation}"] * (dilation > 1)
    parts += [f"g{groups}"] * (groups > 1) + [f"{ins}-{outs}@{size}"] + [f"b{batch}"] * (batch > 1)

    def made() -> tuple[Any, ...]:
        moves = {"stride": stride, "padding": pad, "dilation": dilation, "groups": groups}
        return module(ins, outs, kernel, **moves), rand(batch, ins, *[size] * rank)

    return " ".join(parts), made


def pools() -> Named:
    image, line, box = (2, 64, 56, 56), (8, 64, 500), (2, 16, 16, 32, 32)
    rows: list[tuple[str, Callable[..., Any], tuple[int, ...]]] = [
        ("max 2x2", nn.MaxPool2d(2), image), ("max 3x3 s2", nn.MaxPool2d(3, 2, 1), image),
        ("max 3x3 s1", nn.MaxPool2d(3, 1, 1), (2, 64, 28, 28)),
        ("max 3x3 s2 ceil", nn.MaxPool2d(3, 2, ceil_mode=True), (2, 64, 55, 55)),
        ("max 5x5 s1", nn.MaxPool2d(5, 1, 2), (2, 64, 20, 20)),
        ("max 3x3 d2", nn.MaxPool2d(3, 1, dilation=2), (2, 64, 28, 28)),
        ("max 2x2 odd", nn.MaxPool2d(2), (2, 33, 31, 47)),
        ("max 3 s2", nn.MaxPool1d(3, 2), line), ("max 2x2x2", nn.MaxPool3d(2), box),
        ("max indices", nn.MaxPool2d(2, return_indices=True), image),
        ("avg 2x2", nn.AvgPool2d(2), image), ("avg 3x3 s2", nn.AvgPool2d(3, 2, 1), image),
        ("avg 3x3 s2 inside", nn.AvgPool2d(3, 2, 1, count_include_pad=False), image),
        ("avg 3x3 s2 ceil", nn.AvgPool2d(3, 2, 1, ceil_mode=True), (2, 64, 55, 55)),
        ("avg 7x7", nn.AvgPool2d(7), (2, 512, 7, 7)), ("avg 4", nn.AvgPool1d(4), line),
        ("avg 2x2x2", nn.AvgPool3d(2), box), ("power 3 s2", nn.LPPool2d(2, 3, 2), image),
        ("adaptive avg 1", nn.AdaptiveAvgPool2d(1), image),
        ("adaptive avg 7", nn.AdaptiveAvgPool2d(7), image),
        ("adaptive avg 5", nn.AdaptiveAvgPool2d(5), (2, 64, 33, 47)),
        ("adaptive max 7", nn.AdaptiveMaxPool2d(7), image),
        ("adaptive max 1", nn.AdaptiveMaxPool2d(1), image),
    ]  # fmt: skip
    for name, module, shape in rows:
        yield f"pool {name} {told(shape)}", taken(module, shape)
        yield f"grad pool {name} {told(shape)}", graded(taken(module, shape))


def products() -> Named:
    sizes = [
        (1000, 512, 3), (3, 512, 1000), (1000, 3, 512), (512, 4096, 10), (1, 4096, 1000),
        (7, 4096, 7), (17, 65, 33), (255, 257, 259), (1000, 1, 1000), (64, 10000, 64),
        (8, 768, 768), (2000, 64, 1), (20000, 16, 16), (4, 4, 100000),
    ]  # fmt: skip
    for m, k, n in sizes:
        told = f"{m}x{k}x{n}"
        yield f"mm {told}", taken(torch.matmul, (m, k), (k, n))
        yield f"mm right.T {told}", taken(lambda x, w: x @ w.t(), (m, k), (n, k))
        yield f"mm left.T {told}", taken(lambda x, w: x.t() @ w, (k, m), (k, n))
    for m, k, n in [(64, 784, 128), (256, 512, 10), (1000, 30, 3), (128, 768, 768)]:
        linear = partial(nn.Linear, k, n)
        yield f"grad linear {m}x{k}x{n}", graded(lambda m=m, k=k, made=linear: (made(), rand(m, k)))
    yield "bmm 30x33x65x17", taken(torch.bmm, (30, 33, 65), (30, 65, 17))
    yield "bmm 200x8x8x8", taken(torch.bmm, (200, 8, 8), (200, 8, 8))
    yield "bmm 12x128x64x128", taken(torch.bmm, (12, 128, 64), (12, 64, 128))
    for dtype in ("bf16", "f16", "f64"):
        yield f"mm {dtype} 200x300x400", taken(torch.matmul, (200, 300), (300, 400), dtype=dtype)
    yield "mv 1000x500", taken(torch.mv, (1000, 500), (500,))
    yield "vm 1000x500", taken(torch.matmul, (1000,), (1000, 500))
    yield "outer 1000x500", taken(torch.outer, (1000,), (500,))
    yield "dot 100000", taken(torch.dot, (100000,), (100000,))
    yield "kron", taken(torch.kron, (20, 20), (30, 30))
    yield "bilinear", lambda: (nn.Bilinear(32, 32, 16), rand(100, 32), rand(100, 32))
    yield "cdist", taken(torch.cdist, (300, 64), (400, 64))
    yield "einsum", taken(partial(torch.einsum, "bij,bkj->bik"), (8, 100, 64), (8, 90, 64))


def axes() -> Named:
    """Folds and scans along long axes and short ones, near and far ones."""
    ops: dict[str, Callable[..., Any]] = {
        "sum": torch.sum, "amax": torch.amax, "argmax": torch.argmax, "var": torch.var,
        "softmax": torch.softmax, "logsumexp": torch.logsumexp, "cumsum": torch.cumsum,
        "prod": torch.prod, "norm": lambda x, axis: x.norm(dim=axis),
    }  # fmt: skip
    cases = [
        ((1000, 500), 1), ((1000, 500), 0), ((100000, 3), 1), ((100000, 3), 0), ((3, 100000), 1),
        ((3, 100000), 0), ((50, 100, 100), 1), ((300000,), 0),
    ]  # fmt: skip
    for (name, function), (shape, axis) in product(ops.items(), cases):
        form = taken(lambda x, f=function, a=axis: f(x, a), shape)
        yield f"{name} {told(shape)} along {axis}", form
    for name in ("softmax", "logsumexp", "amax", "var", "norm"):
        form = taken(lambda x, f=ops[name]: f(x, 1), (1000, 500))
        yield f"grad {name} 1000x500", graded(form)
    for dtype in ("bf16", "i32", "i64", "u8"):
        yield f"sum {dtype} 1000x500", taken(lambda x: x.sum(1), (1000, 500), dtype=dtype)
        yield f"amax {dtype} 1000x500", taken(lambda x: x.amax(1), (1000, 500), dtype=dtype)


def of_absolute(function: Callable[..., Any], x: torch.Tensor) -> Any:
    return function(x.abs())


def pointwise() -> Named:
    ops = "sin tanh erf exp log1p sqrt rsqrt sigmoid abs floor round sign expm1 atan lgamma".split()
    for name in ops:
        yield f"{name} 1000x500", taken(partial(of_absolute, getattr(torch, name)), (1000, 500))
    for name in ("gelu", "silu", "softplus", "elu", "hardswish", "mish"):
        yield f"{name} 1000x500", taken(getattr(F, name), (1000, 500))
        yield f"grad {name} 1000x500", graded(taken(getattr(F, name), (1000, 500)))
    yield "pow 1000x500", taken(lambda x: x.abs() ** 2.3, (1000, 500))
    yield "atan2 1000x500", taken(torch.atan2, (1000, 500), (1000, 500))
    yield "remainder 1000x500", taken(torch.remainder, (1000, 500), (1000, 500))
    yield "int div 1000x500", lambda: (
        lambda x, y: x // y, idx(1000, 1000, 500), idx(50, 1000, 500) + 1,
    )  # fmt: skip
    for dtype in ("bf16", "f16", "f64", "i64", "u8"):
        add = taken(torch.add, (1000, 500), (1000, 500), dtype=dtype)
        yield f"add {dtype} 1000x500", add
        to = lambda x: x.to(torch.float32) * 2  # noqa: E731
        yield f"{dtype} to f32 1000x500", taken(to, (1000, 500), dtype=dtype)
    yield "add 1000x500 and row", taken(torch.add, (1000, 500), (500,))
    yield "add 1000x500 and column", taken(torch.add, (1000, 500), (1000, 1))
    yield "add 100000x3 and row", taken(torch.add, (100000, 3), (3,))


def moves() -> Named:
    yield "transpose 1000x500", taken(lambda x: x.t().contiguous(), (1000, 500))
    yield "transpose 100000x3", taken(lambda x: x.t().contiguous(), (100000, 3))
    yield "transpose 3x100000", taken(lambda x: x.t().contiguous(), (3, 100000))
    for order in ((2, 0, 1), (1, 0, 2), (2, 1, 0)):
        form = taken(lambda x, order=order: x.permute(order).contiguous(), (60, 70, 80))
        yield f"permute {told(order)}", form
    yield "cat 1", taken(lambda x, y: torch.cat((x, y), 1), (1000, 500), (1000, 300))
    yield "cat 0", taken(lambda x, y: torch.cat((x, y)), (1000, 500), (700, 500))
    yield "stack 2", taken(lambda x, y: torch.stack((x, y), 2), (1000, 500), (1000, 500))
    yield "repeat", taken(lambda x: x.repeat(2, 3), (300, 200))
    yield "repeat_interleave", taken(lambda x: x.repeat_interleave(3, 1), (300, 200))
    yield "roll", taken(lambda x: x.roll(3, 1), (1000, 500))
    yield "flip 1", taken(lambda x: x.flip(1), (1000, 500))
    yield "flip 0", taken(lambda x: x.flip(0), (1000, 500))
    yield "tril", taken(lambda x: x.tril(), (1000, 500))
    yield "pad", taken(lambda x: F.pad(x, (1, 2, 3, 4)), (20, 100, 100))
    yield "pad reflect", taken(lambda x: F.pad(x, (1, 2, 3, 4), "reflect"), (4, 16, 56, 56))
    yield "slice every second", taken(lambda x: x[:, ::2] * 2, (1000, 500))
    yield "chunk and multiply", taken(lambda x: math.prod(x.chunk(2, 1)), (1000, 500))
    yield "unfold 3x3", taken(lambda x: F.unfold(x, 3, padding=1), (2, 32, 28, 28))
    yield "fold 3x3", taken(lambda x: F.fold(x, (28, 28), 3, padding=1), (2, 288, 784))
    yield "fold 3x3 s2", taken(lambda x: F.fold(x, (28, 28), 3, padding=1, stride=2), (2, 288, 196))
    yield "pixel shuffle", taken(nn.PixelShuffle(2), (2, 64, 56, 56))
    yield "pixel unshuffle", taken(nn.PixelUnshuffle(2), (2, 16, 56, 56))
    for mode in ("nearest", "bilinear", "bicubic"):
        scale = partial(F.interpolate, scale_factor=2, mode=mode)
        yield f"interpolate {mode}", taken(scale, (2, 32, 28, 28))
        yield f"grad interpolate {mode}", graded(taken(scale, (2, 32, 28, 28)))
    yield "grid_sample", lambda: (
        partial(F.grid_sample, align_corners=False), rand(2, 32, 28, 28), rand(2, 28, 28, 2),
    )  # fmt: skip


def indexing() -> Named:
    add = lambda x, i, s: x.scatter_add(0, i, s)  # noqa: E731
    yield "scatter_add rows", lambda: (add, rand(1000, 64), idx(1000, 400, 64), rand(400, 64))
    yield "scatter_add flat", lambda: (add, rand(10000), idx(10000, 400000), rand(400000))
    yield "scatter", lambda: (
        lambda x, i, s: x.scatter(1, i, s), rand(1000, 64), idx(64, 1000, 64), rand(1000, 64),
    )  # fmt: skip
    yield "index_add", lambda: (
        lambda x, i, s: x.index_add(0, i, s), rand(1000, 64), idx(1000, 4000), rand(4000, 64),
    )  # fmt: skip
    yield "index_put accumulate", lambda: (
        lambda x, i, s: x.index_put((i,), s, accumulate=True),
        rand(1000, 64), idx(1000, 4000), rand(4000, 64),
    )  # fmt: skip
    yield "index_put", lambda: (
        lambda x, i, s: x.index_put((i,), s), rand(1000, 64), torch.randperm(1000)[:400],
        rand(400, 64),
    )  # fmt: skip
    gather = lambda x, i: x.gather(1, i)  # noqa: E731
    yield "gather", lambda: (gather, rand(1000, 512), idx(512, 1000, 512))
    yield "grad gather", graded(lambda: (gather, rand(1000, 512), idx(512, 1000, 64)))
    yield "index rows", lambda: (lambda x, i: x[i], rand(10000, 64), idx(10000, 4000))
    yield "grad index rows", graded(lambda: (lambda x, i: x[i], rand(1000, 64), idx(1000, 4000)))
    yield "index columns", lambda: (lambda x, i: x[:, i], rand(1000, 512), idx(512, 200))
    yield "embedding", lambda: (nn.Embedding(10000, 64), idx(10000, 32, 50))
    yield "grad embedding", graded(lambda: (nn.Embedding(1000, 64), idx(1000, 32, 50)))
    for mode in ("sum", "mean", "max"):
        bag = partial(nn.EmbeddingBag, 10000, 64, mode=mode)
        yield f"embedding bag {mode}", lambda bag=bag: (bag(), idx(10000, 256, 20))
    yield "one_hot", lambda: (lambda i: F.one_hot(i, 100), idx(100, 1000))
    yield "bucketize", lambda: (torch.bucketize, rand(1000, 500), rand(64).sort()[0])
    yield "histc", taken(lambda x: torch.histc(x, 50), (100000,))
    for name in ("cummax", "cummin", "logcumsumexp", "cumprod", "sort", "median"):
        yield f"{name} 300x500", taken(partial(getattr(torch, name), dim=1), (300, 500))
    yield "topk 1000x500", taken(lambda x: x.topk(10, 1), (1000, 500))


def layers() -> Named:
    image, rows = (4, 64, 28, 28), (1000, 500)
    norms: list[tuple[str, Callable[..., Any], tuple[int, ...]]] = [
        ("layer norm", nn.LayerNorm(500), rows), ("rms norm", nn.RMSNorm(500), rows),
        ("batch norm train", partial(F.batch_norm, training=True), image),
        ("batch norm 1d train", partial(F.batch_norm, training=True), rows),
        ("group norm", nn.GroupNorm(8, 64), image), ("instance norm", nn.InstanceNorm2d(64), image),
        ("response norm", nn.LocalResponseNorm(5), image),
        ("normalize", F.normalize, rows), ("glu", F.glu, rows),
    ]  # fmt: skip
    for name, function, shape in norms:
        more = (None, None) if "batch" in name else ()
        form: Form = lambda f=function, shape=shape, more=more: (f, rand(*shape), *more)  # noqa: E731
        yield name, form
        yield f"grad {name}", graded(form)
    losses = "mse_loss huber_loss l1_loss cosine_similarity".split()
    for name in losses:
        yield name, taken(getattr(F, name), rows, rows)
        yield f"grad {name}", graded(taken(getattr(F, name), rows, rows))
    for name, shape in (("rows", (500, 1000)), ("images", (4, 21, 64, 64))):
        form = lambda s=shape: (F.cross_entropy, rand(*s), idx(s[1], s[0], *s[2:]))  # noqa: E731
        yield f"cross entropy {name}", form
        yield f"grad cross entropy {name}", graded(form)
    bce = F.binary_cross_entropy_with_logits
    yield "binary cross entropy", lambda: (bce, rand(*rows), torch.rand(rows))
    yield "kl", taken(lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1)), rows, rows)
    yield "triplet", taken(F.triplet_margin_loss, (300, 64), (300, 64), (300, 64))
    yield "ctc", lambda: (
        lambda x, i: F.ctc_loss(x.log_softmax(2), i, torch.full((8,), 50), torch.full((8,), 10)),
        rand(50, 8, 30), idx(29, 8, 10) + 1,
    )  # fmt: skip
    yield "lstm", lambda: (nn.LSTM(64, 64, batch_first=True), rand(8, 30, 64))
    yield "gru", lambda: (nn.GRU(64, 64, batch_first=True), rand(8, 30, 64))
    yield "grad lstm", graded(lambda: (nn.LSTM(64, 64, batch_first=True), rand(8, 10, 64)))
    for name, shape in (("4x4x50x16", (4, 4, 50, 16)), ("1x8x512x64", (1, 8, 512, 64))):
        attend = taken(F.scaled_dot_product_attention, shape, shape, shape)
        yield f"attention {name}", attend
        yield f"grad attention {name}", graded(attend)
        causal = partial(F.scaled_dot_product_attention, is_causal=True)
        yield f"attention causal {name}", taken(causal, shape, shape, shape)


def forms() -> dict[str, Form]:
    """All of them, by name; a name that two have would be an error of this file."""
    groups = (convolutions, transposed, pools, products, axes, pointwise, moves, indexing, layers)
    found: dict[str, Form] = {}
    for name, form in (pair for group in groups for pair in group()):
        if name in found:
            raise AssertionError(f"two forms are called {name}")
        found[name] = form
    return found
