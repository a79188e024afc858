"""Contractions, convolutions, attention, and nets of a few of everything."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from tests.agree.inputs import bf16, boolean, cases, f16, f32, f64, i32, i64


def epilogues(x, w, b):
    return F.relu(x @ w + b), F.gelu(torch.addmm(b, x, w)) * 2, (x @ w).softmax(-1), (x @ w).sum(0)


def prologues(x, w, b):
    return (
        F.relu(x + b) @ w,
        x.softmax(-1) @ w,
        F.layer_norm(x, x.shape[-1:]) @ w,
        (x * b) @ w.exp(),
    )


def orientations(x, y):
    """x: m k, y: k n, through every layout of both."""
    xt, yt = x.t().contiguous(), y.t().contiguous()
    return x @ y, xt.t() @ y, x @ yt.t(), xt.t() @ yt.t(), yt @ xt, y.t() @ x.t()


def mlp(x, up, down):
    return x + F.gelu(x @ up.t()) @ down.t()


def gated(x, a, b, c):
    return (F.silu(F.linear(x, a)) * F.linear(x, b)) @ c


def attend(**options):
    return lambda q, k, v, *mask: F.scaled_dot_product_attention(q, k, v, *mask, **options)


def by_hand(q, k, v):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~keep, float("-inf")).softmax(-1) @ v


def conv(**options):
    return lambda x, w, *b: F.conv2d(x, w, *b, **options)


def decoder(x, norm, qkv, out, up, down):
    n, d = x.shape
    h = F.rms_norm(x, (d,), norm, 1e-6)
    q, k, v = (h @ qkv.t()).view(n, 3, 4, d // 4).permute(1, 2, 0, 3).unbind(0)
    x = (
        x
        + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).reshape(n, d)
        @ out
    )
    return x + F.gelu(F.rms_norm(x, (d,), norm, 1e-6) @ up) @ down


def resnet(x, w, mean, var):
    y = F.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, var))
    y = F.batch_norm(F.conv2d(y, w, padding=1), mean, var)
    return F.adaptive_avg_pool2d(F.relu(x + y), 1).flatten(1)


def lstm_cell(x, h, c, w, u):
    i, f, g, o = (x @ w + h @ u).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


NETS = cases(
    matmul=(lambda x, y: x @ y, f32(17, 37), f32(37, 19)),
    matmul_large=(lambda x, y: x @ y, f32(65, 130), f32(130, 97)),
    matmul_orientations=(orientations, f32(7, 23), f32(23, 33)),
    matmul_f64=(orientations, f64(7, 23), f64(23, 33)),
    matmul_f16=(orientations, f16(7, 23), f16(23, 33)),
    matmul_bf16=(orientations, bf16(7, 23), bf16(23, 33)),
    matmul_bf16_even=(orientations, bf16(9, 34), bf16(34, 47)),
    matmul_bf16_long=(lambda x, y: (x @ y, (x @ y).float()), bf16(17, 600), bf16(600, 40)),
    matmul_bf16_strided=(lambda x, y: x @ y, bf16(14, 46)[::2, ::2], bf16(33, 24).t()[1:]),
    matmul_bf16_sliced=(
        lambda x, y: (x[:, 4:16] @ y[:12], x[:, 1:13] @ y[:12], x[:, :7] @ y[:7]),
        bf16(9, 16),
        bf16(13, 33),
    ),
    matmul_bf16_f32=(lambda x, y: x.float() @ y.float(), bf16(9, 34), bf16(34, 47)),
    matmul_i64=(orientations, i64(7, 23), i64(23, 33)),
    matmul_i32=(lambda x, y: x @ y, i32(7, 23), i32(23, 33)),
    matmul_1=(lambda x, y: x @ y, f32(1, 1), f32(1, 1)),
    matmul_empty_k=(lambda x, y: x @ y + 1, f32(3, 0), f32(0, 5)),
    matmul_empty_m=(lambda x, y: (x @ y, (x @ y).sum(0)), f32(0, 3), f32(3, 5)),
    matmul_vectors=(
        lambda x, y, v: (x @ v, v @ y, v @ v, torch.outer(v, v)),
        f32(7, 23),
        f32(23, 9),
        f32(23),
    ),
    matmul_column=(lambda x, y: x @ y, f32(33, 23), f32(23, 1)),
    matmul_row=(lambda x, y: x @ y, f32(1, 23), f32(23, 33)),
    matmul_strided=(lambda x, y: x @ y, f32(14, 46)[::2, ::2], f32(33, 23).t()),
    matmul_self=(lambda x: (x @ x.t(), x.t() @ x), f32(17, 23)),
    bmm=(lambda x, y: torch.bmm(x, y), f32(3, 7, 23), f32(3, 23, 18)),
    bmm_transposed=(lambda x, y: x @ y.transpose(1, 2), f32(3, 7, 23), f32(3, 18, 23)),
    matmul_batch_broadcast=(lambda x, y: x @ y, f32(2, 1, 7, 23), f32(3, 23, 18)),
    matmul_batch_flat=(lambda x, y: x @ y, f32(2, 3, 7, 23), f32(23, 18)),
    epilogues=(epilogues, f32(7, 23), f32(23, 33), f32(33)),
    bmm_bf16=(lambda x, y: x @ y.transpose(1, 2), bf16(3, 7, 22), bf16(3, 18, 22)),
    epilogues_bf16=(epilogues, bf16(7, 22), bf16(22, 33), bf16(33)),
    epilogues_f16=(epilogues, f16(7, 23), f16(23, 33), f16(33)),
    prologues=(prologues, f32(7, 23), f32(23, 33), f32(23)),
    prologues_bf16=(prologues, bf16(7, 23), bf16(23, 33), bf16(23)),
    linear=(F.linear, f32(3, 7, 23), f32(33, 23), f32(33)),
    linear_bf16=(F.linear, bf16(3, 7, 23), bf16(33, 23), bf16(33)),
    baddbmm=(
        lambda b, x, y: torch.baddbmm(b, x, y, beta=0.5, alpha=2),
        f32(3, 1, 18),
        f32(3, 7, 23),
        f32(3, 23, 18),
    ),
    einsum=(lambda x, y: torch.einsum("bij,bkj->bik", x, y), f32(3, 7, 23), f32(3, 18, 23)),
    einsum_outer=(lambda x, y: torch.einsum("i,j->ij", x, y), f32(7), f32(9)),
    einsum_many=(lambda x, y: torch.einsum("abc,dcb->ad", x, y), f32(5, 3, 7), f32(4, 7, 3)),
    einsum_heads=(
        lambda x, y: torch.einsum("bqhd,bkhd->bhqk", x, y),
        f32(2, 5, 3, 8),
        f32(2, 6, 3, 8),
    ),
    chain_of_matmuls=(lambda x, a, b: (x @ a).relu() @ b, f32(9, 17), f32(17, 35), f32(35, 5)),
    mlp=(mlp, f32(9, 20), f32(50, 20), f32(20, 50)),
    mlp_bf16=(mlp, bf16(9, 20), bf16(50, 20), bf16(20, 50)),
    gated=(gated, f32(9, 20), f32(50, 20), f32(50, 20), f32(50, 20)),
    matmul_gathered=(lambda x, rows, w: x[rows] @ w, f32(11, 17), i64(6, below=11), f32(17, 19)),
    matmul_concat=(lambda x, y, w: torch.cat((x, y), 1) @ w, f32(9, 7), f32(9, 10), f32(17, 19)),
    attention=(attend(), f32(2, 3, 9, 8), f32(2, 3, 13, 8), f32(2, 3, 13, 8)),
    attention_causal=(attend(is_causal=True), *[f32(2, 3, 19, 8)] * 3),
    attention_mask=(
        attend(),
        f32(2, 3, 9, 8),
        *[f32(2, 3, 13, 8)] * 2,
        boolean(9, 13).bitwise_or(torch.eye(9, 13, dtype=torch.bool)),
    ),
    attention_float_mask=(
        attend(scale=0.3),
        f32(2, 3, 9, 8),
        *[f32(2, 3, 13, 8)] * 2,
        f32(2, 1, 9, 13),
    ),
    attention_grouped=(attend(enable_gqa=True), f32(2, 6, 9, 8), *[f32(2, 2, 13, 8)] * 2),
    attention_f16=(attend(is_causal=True), *[f16(2, 3, 19, 8)] * 3),
    attention_bf16=(attend(), *[bf16(1, 2, 7, 16)] * 3),
    attention_by_hand=(by_hand, *[f32(2, 3, 11, 8)] * 3),
    conv1d=(
        lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1),
        f32(2, 3, 17),
        f32(5, 3, 3),
        f32(5),
    ),
    conv2d=(conv(), f32(2, 3, 9, 11), f32(5, 3, 3, 2), f32(5)),
    conv2d_padded=(conv(padding=1), f32(2, 3, 9, 11), f32(5, 3, 3, 3)),
    conv2d_strided=(conv(stride=(2, 3), padding=(0, 2)), f32(1, 3, 9, 11), f32(5, 3, 3, 3)),
    conv2d_short_rows=(conv(padding=1), f32(2, 3, 7, 7), f32(24, 3, 3, 3), f32(24)),
    conv2d_short_rows_strided=(conv(stride=2), f32(1, 4, 12, 11), f32(24, 4, 3, 3)),
    conv2d_dilated=(conv(dilation=2, padding=2), f32(1, 3, 9, 11), f32(5, 3, 3, 3)),
    conv2d_grouped=(conv(groups=3), f32(2, 6, 9, 11), f32(9, 2, 3, 3)),
    conv2d_depthwise=(conv(groups=6, padding=1), f32(2, 6, 9, 11), f32(6, 1, 3, 3)),
    conv2d_pointwise=(conv(), f32(2, 6, 9, 11), f32(7, 6, 1, 1)),
    conv2d_same=(lambda x, w: F.conv2d(x, w, padding="same"), f32(1, 3, 9, 11), f32(5, 3, 4, 3)),
    conv2d_f16=(conv(padding=1), f16(1, 3, 9, 11), f16(5, 3, 3, 3)),
    conv2d_bf16=(conv(padding=1), bf16(1, 4, 9, 11), bf16(5, 4, 3, 3)),
    conv2d_bf16_odd=(conv(padding=1, stride=2), bf16(1, 3, 9, 11), bf16(5, 3, 3, 3), bf16(5)),
    conv2d_channels_last=(conv(padding=1), f32(2, 9, 11, 3).permute(0, 3, 1, 2), f32(5, 3, 3, 3)),
    conv_relu_pool=(
        lambda x, w, b: F.max_pool2d(F.relu(F.conv2d(x, w, b)), 2),
        f32(2, 3, 9, 11),
        f32(5, 3, 3, 3),
        f32(5),
    ),
    decoder=(decoder, f32(9, 16), f32(16), f32(48, 16), f32(16, 16), f32(16, 40), f32(40, 16)),
    decoder_bf16=(decoder, bf16(5, 8), bf16(8), bf16(24, 8), bf16(8, 8), bf16(8, 20), bf16(20, 8)),
    resnet=(resnet, f32(2, 4, 7, 9), f32(4, 4, 3, 3), f32(4), f32(4).abs()),
    lstm_cell=(lstm_cell, f32(5, 9), f32(5, 7), f32(5, 7), f32(9, 28), f32(7, 28)),
    logits_sampled=(lambda x, w: (x @ w).softmax(-1).argmax(-1), f32(5, 16), f32(16, 37)),
    sums_of_matmul=(
        lambda x, y: ((x @ y).sum(), (x @ y).amax(0), x.sum(1)),
        f32(9, 17).abs(),  # with signs, the error of the sum of everything is beside nothing
        f32(17, 21).abs(),
    ),
)
