"""Programs past the thresholds of the schedule: threads, packed panels, tiles, scratch memory."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from tests.agree.inputs import bf16, boolean, cases, f16, f32, i32, i64, u8


def half_rms_norm(x, w):
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    return x * scale.half() * w


def squared(x, w):
    """A product of 4096 factors, 12 of them different."""
    for _ in range(12):
        x = x * x
    return x @ w


LARGE = cases(
    large_sum=(lambda x: x.sum(), f32(100_003)),
    large_sum_of_a_million=(lambda x: x.sum(), f32(1_000_003)),
    large_column_sum=(lambda x: x.sum(0), f32(5000, 37)),
    large_transpose=(lambda x, y: x.t() + y, f32(301, 517), f32(517, 301)),
    large_transpose_bf16=(lambda x: x.t().contiguous() * 2, bf16(131, 257)),
    large_transposed_copies=(
        lambda x, y: (x.t().contiguous(), y.permute(0, 2, 3, 1).contiguous()),
        *(f32(131, 277), f32(2, 19, 7, 9)),
    ),
    large_scans_along_rows=(
        lambda x: (x.cumsum(1), x.flip(1).cumprod(1), x.double().cumsum(1), x.bfloat16().cumsum(1)),
        f32(37, 53),
    ),
    large_transpose_i64=(lambda x: x.t().contiguous() * 2, i64(131, 257)),
    large_transpose_bool=(lambda x: (~x.t()).contiguous(), boolean(131, 257)),
    large_matmul=(lambda x, w, b: F.relu(x @ w + b), f32(257, 301), f32(301, 413), f32(413)),
    large_matmul_bf16=(lambda x, w: F.silu(x @ w), bf16(65, 130), bf16(130, 97)),
    large_matmul_tall=(lambda x, w: x @ w, f32(3, 2000), f32(2000, 700)),
    large_matmul_deep=(lambda x, w: x.t() @ w, f32(3000, 17), f32(3000, 19)),
    large_few_rows=(F.linear, f32(9, 130), f32(67, 130), f32(67)),
    large_few_rows_bf16=(lambda x, w: F.silu(x @ w.t()), bf16(5, 131), bf16(67, 131)),
    large_few_rows_f16=(lambda x, w: x @ w.t(), f16(13, 96)[:, 1:], f16(70, 95)[::2]),
    large_few_rows_i32=(lambda x, w: x @ w.t(), i32(6, 96), i32(33, 96)),
    large_few_rows_batched=(
        lambda q, k: q @ k.transpose(-1, -2),
        *(f32(2, 3, 7, 130), f32(2, 3, 35, 130)),
    ),
    large_softmax=(lambda x: x.softmax(-1), f32(64, 5003)),
    large_softmax_columns=(lambda x: x.softmax(0), f32(5003, 33)),
    large_softmax_of_one_row=(lambda x: x.softmax(0), f32(100003)),
    large_layer_norm=(lambda x: F.layer_norm(x, (1027,)), f32(300, 1027)),
    large_rms_norm_f16=(half_rms_norm, f16(130, 1000), f16(1000)),
    large_batch_norm=(lambda x: F.batch_norm(x, None, None, training=True), f32(16, 24, 28, 28)),
    large_conv=(
        lambda x, w: F.relu(F.conv2d(x, w, padding=1)),
        f32(2, 8, 40, 41),
        f32(24, 8, 3, 3),
    ),
    large_scan_of_one_row=(lambda x: x.cumsum(1), f32(1, 67).expand(40, 67)),
    large_scan_scaled=(lambda x: x.cumsum(1) * 2 + x, f32(40, 67)),
    large_scan=(lambda x: x.flip(1).cumsum(1).flip(1), f32(300, 301)),
    large_u8=(lambda x: (x // 3, x % 7, (x > 100).sum(1)), u8(130, 301)),
    large_power=(squared, f32(5, 7).clamp(-1, 1), f32(7, 19)),
    positions_to_far=(
        lambda x: (
            *(torch.arange(1, 101) <= x[:, None], torch.arange(100) + 3 < x[:, None]),
            *(x[:, None] >= torch.arange(-5, 95), torch.arange(100) < x[:, None] + 3),
        ),
        i64(8, of=(-(2**63), 2**63 - 1024, 0, 5, -(2**62), 2**62, 57, 100)),
    ),
    divided_by_numbers=(
        lambda x: tuple((x // n, x % n) for n in (1, 2, 3, 7, 64, 1000, -3, -8)),
        i64(11, of=(-(2**63), 2**63 - 1, 0, -1, 1, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 7, -7)),
    ),
    divided_positions=(
        lambda x: (
            *(x[torch.arange(197) * 2 // 3], x * (torch.arange(211) // 7 % 5)),
            *((torch.arange(211) - 100) % 3 * x, x * ((torch.arange(211) + 2**31 - 90) // 7)),
        ),
        f32(211),
    ),
    enlarged=(
        lambda x: (
            *(F.interpolate(x, scale_factor=s) for s in (2, 1.5, 3.0, 0.75)),
            *(F.interpolate(x, size=n) for n in ((13, 9), (5, 40), (3, 2))),
            F.interpolate(x, scale_factor=1.5, mode="nearest-exact"),
        ),
        f32(2, 3, 11, 18),
    ),
    enlarged_further=(
        lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x[0], size=37)),
        f32(1, 2, 3, 4, 17),
    ),
)
