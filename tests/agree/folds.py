"""Reductions over any axes, softmax, norms, scans, pools: what folds a tensor along axes."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from tests.agree.inputs import Case, bf16, boolean, cases, f16, f32, f64, i8, i32, i64, tensor, u8

AXES = (None, 0, 1, 2, (0, 1), (1, 2), (0, 2), (0, 1, 2))


def sums(x):
    return x.sum(), *(x.sum(d, keepdim=k) for d in AXES[1:] for k in (False, True))


def extremes(x):
    return x.amax(), *(x.amax(d) for d in AXES[1:]), *(x.amin(d, keepdim=True) for d in AXES[1:])


def positions(x):
    return (
        x.argmax(),
        x.argmin(),
        *(x.argmax(d) for d in range(3)),
        *(x.argmin(d) for d in range(3)),
    )


def spreads(x):
    return x.var(), x.std(1), x.var((0, 2)), x.var(-1, correction=0), *torch.var_mean(x, 1)


def both(x):
    return *x.max(1), *x.min(-1), *x.max(0)


def logic(x):
    return x.any(), x.all(), x.any(0), x.all(1), x.any(2), (x > 0).sum(1), x.sum()


def products(x):
    return x.prod(), x.prod(0), x.prod(2), x.mean(), x.mean((0, 2)), x.logsumexp(1), x.norm()


def softmaxes(x):
    return *(x.softmax(d) for d in range(3)), *(x.log_softmax(d) for d in range(3))


def scans(x):
    return *(x.cumsum(d) for d in range(3)), x.flip(1).cumsum(1).exp(), x.cumsum(2).sum(2)


def running_extremes(x):
    ends = (*x.cummax(0), *x.cummin(-1))
    return *ends, x.cummax(1).indices, x.cummin(1).values


def layer_norm(x):
    return F.layer_norm(x, x.shape[-1:])


def group_norm(x, w, b):
    return F.group_norm(x, 3, w, b)


def batch_norm(x, mean, var, w):
    return F.batch_norm(x, mean, var, w), F.batch_norm(x, None, None, training=True)


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def normalized(x):
    return F.normalize(x, dim=1), (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


def by_dtype() -> list[Case]:
    rows = {
        torch.float16: (spreads, softmaxes, layer_norm),
        torch.bfloat16: (sums, positions, layer_norm),
        torch.float64: (extremes, softmaxes, layer_norm),
    }
    return [
        Case(f"{fn.__name__}_{str(d).removeprefix('torch.')}", fn, (tensor(d, 3, 5, 37),))
        for d, functions in rows.items()
        for fn in functions
    ]


FOLDS = by_dtype() + cases(
    sums=(sums, f32(3, 5, 37)),
    sums_i32=(sums, i32(3, 5, 37)),
    sums_i8=(lambda x: (x.sum(), x.sum(1), x.sum(0, dtype=torch.int8)), i8(5, 137)),
    sums_u8=(lambda x: (x.sum(0), x.amax(1), x.argmin(1)), u8(5, 137)),
    sums_wide=(lambda x: (x.sum(0), x.sum(1), x.sum()), f32(130, 200)),
    sums_as_f64=(lambda x: x.sum(1, dtype=torch.float64), f32(5, 137)),
    sums_as_f32=(lambda x: x.sum(1, dtype=torch.float32), f16(5, 137)),
    extremes=(extremes, f32(3, 5, 37)),
    extremes_i64=(extremes, i64(3, 5, 37)),
    extremes_bool=(lambda x: (x.amax(0), x.amin(1)), boolean(5, 37)),
    positions=(positions, f32(3, 5, 37)),
    positions_ties=(positions, f32(3, 5, 37, below=2)),
    positions_i64=(positions, i64(3, 5, 37, below=9)),
    max_and_where=(both, f32(3, 5, 37)),
    max_and_where_i32=(both, i32(3, 5, 37, below=8)),
    nan_positions=(
        lambda x: (x.argmax(1), x.amax(0), x.argmin(0)),
        f32(5, 37, of=(1.0, float("nan"), 3.0, 2.0, 0.5)),
    ),
    spreads=(spreads, f32(3, 5, 37)),
    products=(products, f32(3, 5, 7)),
    logic=(logic, boolean(3, 5, 37)),
    logic_float=(logic, f32(3, 5, 37, below=2)),
    count=(lambda x: ((x > 0).sum(), (x > 0).sum(0), (x > 0).float().mean(1)), f32(5, 37)),
    strided_sums=(sums, f32(37, 5, 6).permute(2, 1, 0)[::2]),
    expanded_sums=(sums, f32(5, 1).expand(3, 5, 37)),
    empty_sums=(lambda x: (x.sum(), x.sum(0), x.sum(1), x.prod(1), x.any(1), x.mean(0)), f32(3, 0)),
    one_sums=(sums, f32(1, 1, 1)),
    rank_0_sum=(lambda x: (x.sum(), x.amax(), x.softmax(0)), f32()),
    softmaxes=(softmaxes, f32(3, 5, 37)),
    softmax_specials=(
        lambda x: (x.softmax(0), x.log_softmax(0), x.logsumexp(0)),
        f32(7, of=(1.0, float("-inf"))),
    ),
    softmax_of_inf=(lambda x: x.softmax(1), f32(2, 5, of=(float("-inf"),))),
    softmax_large=(lambda x: (x * 1000).softmax(-1), f32(5, 37)),
    scans=(scans, f32(3, 5, 37)),
    scans_i64=(lambda x: (x.cumsum(0), x.cumsum(1), (x > 0).cumsum(1)), i64(5, 37)),
    scans_f16=(lambda x: (x.cumsum(0), x.cumsum(-1)), f16(5, 37)),
    running_extremes=(running_extremes, f32(5, 37)),
    running_extremes_ties=(running_extremes, f32(3, 5, 37, of=(1.0, -2.0, 1.0, 0.5))),
    running_extremes_specials=(
        running_extremes,
        f32(5, 37, of=(float("-inf"), 1.0, float("inf"), 2.0, float("nan"), 3.0)),
    ),
    running_extremes_bool=(running_extremes, boolean(5, 37)),
    running_extremes_u8=(running_extremes, u8(5, 37)),
    running_extremes_i64=(running_extremes, i64(5, 37, below=4)),
    running_extremes_bf16=(running_extremes, bf16(5, 37)),
    running_extremes_f64=(running_extremes, f64(5, 37)),
    running_extremes_empty=(lambda x: (*x.cummax(0), *x.cummin(1), x.logcumsumexp(1)), f32(3, 0)),
    running_extremes_one=(lambda x: (*x.cummax(0), x.logcumsumexp(1)), f32(1, 7)),
    sorts=(
        lambda x: (*(x * 2).sort(1), x.argsort(0, descending=True), *x.topk(3, 0), x.median()),
        f32(5, 37),
    ),
    sorts_bf16=(lambda x: (x.sort(-1).values + 1, *x.kthvalue(2), *x.mode(0)), bf16(5, 37)),
    sorts_ints=(lambda x: (x.msort(), x.sort(0, descending=True).values), i64(5, 37, below=4)),
    sorts_empty=(lambda x: (*x.sort(0), *x.sort(1)), f32(3, 0)),
    searches=(
        lambda x, at: (
            torch.searchsorted(x.sort(-1).values, x),
            torch.bucketize(x, at.sort().values, right=True),
            x.histc(7, -1, 1),
        ),
        f32(5, 37),
        f32(9),
    ),
    running_rank_0=(lambda x: (*x.cummax(0), *x.cummin(-1), x.logcumsumexp(0)), f32()),
    running_logsumexp=(lambda x: (x.logcumsumexp(0), x.logcumsumexp(-1)), f32(5, 37)),
    running_logsumexp_f64=(lambda x: (x.logcumsumexp(0), x.logcumsumexp(-1)), f64(5, 37)),
    running_logsumexp_f16=(lambda x: (x.logcumsumexp(0), x.logcumsumexp(-1)), f16(5, 37)),
    running_logsumexp_of_inf=(
        lambda x: (x.logcumsumexp(0), x.logcumsumexp(1)),
        f32(5, 37, of=(float("-inf"), float("-inf"), 1.0, float("inf"), 2.0)),
    ),
    scan_products=(lambda x: (x.cumprod(0), x.cumprod(1)), f32(5, 7)),
    scan_of_softmax=(lambda x: x.softmax(-1).cumsum(-1) < 0.9, f32(5, 37)),
    layer_norm=(lambda x, w, b: F.layer_norm(x, (37,), w, b), f32(3, 5, 37), f32(37), f32(37)),
    layer_norm_2=(lambda x: F.layer_norm(x, (5, 37)), f32(3, 5, 37)),
    rms_norm=(rms_norm, f32(5, 137), f32(137)),
    rms_norm_aten=(lambda x, w: F.rms_norm(x, (137,), w, 1e-5), f32(5, 137), f32(137)),
    rms_norm_bf16=(rms_norm, bf16(5, 137), bf16(137)),
    group_norm=(group_norm, f32(2, 6, 5, 7), f32(6), f32(6)),
    group_norm_f16=(group_norm, f16(2, 6, 5, 7), f16(6), f16(6)),
    batch_norm=(batch_norm, f32(4, 6, 5), f32(6), f32(6).abs(), f32(6)),
    instance_norm=(lambda x: F.instance_norm(x), f32(2, 3, 5, 7)),
    normalized=(normalized, f32(5, 37)),
    residual_norm=(
        lambda x, y, w: (x + y, F.layer_norm(x + y, (37,), w)),
        f32(5, 37),
        f32(5, 37),
        f32(37),
    ),
    two_reductions=(lambda x: (x - x.amax(0)).exp().sum(1) / x.sum(), f32(5, 37)),
    entropy=(lambda x: -(x.softmax(1) * x.log_softmax(1)).sum(1), f32(5, 37)),
    cross_entropy=(lambda x, y: F.cross_entropy(x, y), f32(8, 37), i64(8, below=37)),
    mse=(
        lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y)),
        f32(5, 37),
        f32(5, 37),
    ),
    max_pool=(lambda x: F.max_pool2d(x, 3, 2, 1), f32(2, 3, 11, 13)),
    avg_pool=(
        lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
        f32(2, 3, 11, 13),
    ),
    pools_1d=(lambda x: (F.max_pool1d(x, 3), F.avg_pool1d(x, 3, 2)), f32(2, 3, 17)),
    adaptive_pool=(
        lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (2, 3))),
        f32(2, 3, 8, 9),
    ),
    max_pool_dilated=(lambda x: F.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True), f32(2, 3, 11, 13)),
    f64_mean=(lambda x: x.mean(0) + x.mean(1).sum(), f64(5, 37)),
)
