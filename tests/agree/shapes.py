"""Views, pads, concatenations, factories, gathers: programs that move elements about."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn import functional as F

from tests.agree.inputs import bf16, boolean, cases, f16, f32, f64, i8, i32, i64, u8


def views(x):
    return (
        *(
            x.t() + 1,
            x.flip(0) * 2,
            x.flip(0, 1) + x,
            x[1:4] * 2,
            x[:, ::3] + 1,
            x[::2, 5:30:4].exp(),
        ),
        *(x.reshape(37, 5) + 1, x.reshape(-1) * 2, x[:, None].expand(5, 3, 37) * 2, x[2] + x[-1]),
        *(x.unsqueeze(0) - 1, x.narrow(1, 3, 9) * 2, x.roll(3, 1) + x, x.repeat(2, 3) + 1),
    )


def reshaped(x):
    y = x.reshape(2, 3, 4, 5).permute(2, 0, 3, 1).reshape(8, 15)
    return y * 2, y.t().reshape(4, 30).flip(1) + 1, x.view(6, 20).t().reshape(5, 24).sum(0)


def padded(x):
    return (
        *(F.pad(x, (1, 2)) * 2, F.pad(x, (0, 0, 3, 1), value=-1.5) + 1, F.pad(x, (-2, 3, 1, -1))),
        *(F.pad(x[None], (2, 3), mode="reflect"), F.pad(x[None], (2, 1), mode="replicate")),
        *(F.pad(x[None], (2, 1), mode="circular"), F.pad(x, (1, 1), value=float("inf")).amin(1)),
    )


def padded_any(x):
    return F.pad(x, (1, 2)), F.pad(x, (0, 0, 3, 1), value=1), F.pad(x, (1, 16)).sum(1)


def windows(x):
    return x.unfold(1, 5, 3) * 2, x.unfold(1, 4, 1).sum(2)


def diagonals(x):
    return (
        *(x.diagonal() * 2, x.diagonal(2) + 1, torch.diag(x[0, :4]), x.tril(1), x.triu(-1)),
        *(torch.tril(torch.ones(5, 7)) * x[:, :7], torch.diag_embed(x[:, :3])),
    )


def joined(x, y):
    return (
        *(torch.cat((x, y)) * 2, torch.cat((x, y, x), 0).sum(0), torch.stack((x[:3], y), 1) + 1),
        *(
            torch.cat((x.t(), y.t()), 1),
            torch.cat((x[:3], y), 1).relu(),
            torch.hstack((x[0], y[0])),
        ),
    )


def parted(x):
    a, b, c = x.split((10, 20, 7), 1)
    p, q = x.chunk(2, 0)
    return a * 2, b.sum(1), c.exp(), p + 1, q - p[:2], *(u * 2 for u in x.unbind(0)[:2])


def factories(x):
    return (
        *(
            torch.arange(37) * x,
            torch.arange(3, 20, 2),
            torch.linspace(0, 1, 11) * 2,
            torch.eye(5) @ x,
        ),
        *(torch.ones_like(x) * 2, torch.full((4,), 2.5), torch.zeros(3, dtype=torch.bfloat16)),
        *(torch.arange(0, 1, 0.1), x.new_zeros(2, 3) + 1, torch.tensor([1.0, 2.0, 3.0]) * x[0, 0]),
    )


def causal(x):
    n = x.shape[-1]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    return (x[:, :, None] * x[:, None]).masked_fill(~mask, float("-inf")).softmax(-1)


def gathered(x, rows, at):
    return (
        *(x[rows], x[:, at], x[rows, at[:4]], x.index_select(0, rows), x[rows][:, at] * 2),
        *(F.embedding(rows, x), F.embedding(rows.reshape(2, 2), x) + 1, x[rows].sum(0)),
        *(x.take_along_dim(at[None, :].expand(5, -1), 1), torch.take(x, at), x[rows - 5]),
    )


def folded_slices(x):
    """Folds of the first elements of an axis are not folds of the axis."""
    pooled = F.max_pool2d(x[None, :3, :3], 2), F.avg_pool2d(x[None, :5, :5], 3)
    return x[:, :2].sum(1), x[:3].amax(0), x.t()[:4].mean(0), x[:2, :2].prod(1), *pooled


def folded_at(x, rows, at, y, z):
    """Along the first axis and the last, into what is computed, several at one place."""
    into = torch.scatter_add(x * 2, 0, rows, y)
    return into, x.scatter_add(1, at, z), x.index_add(0, rows[:, 0], y, alpha=3)


def gathered_along(x, at):
    return x.gather(1, at), x.gather(0, at % 5), torch.gather(x * 2, 1, at).exp().sum(1)


def gathered_by_counts(x, m):
    count = m.sum(0)  # of each column: what lanes have folded is an index, and divides
    part = torch.arange(13) * 2 <= count * 9
    return torch.gather(x, 0, count[None] % 3), part * x[0], 100 // (count + 1)


def scattered(x, at):
    return torch.zeros(5, 37).scatter(1, at, x[:, :6]), x.index_add(0, at[0, :2] % 5, x[:2])


def written(x, y):
    z = x.clone()
    z[1:3, ::2] = y
    z[0] += 1
    z[:, -1] = 7
    return z, torch.where(z > 0, z, 0)


def rotated(x):
    a, b = x.chunk(2, -1)
    angle = torch.arange(8)[:, None] / (10000 ** (torch.arange(5) / 5))
    return torch.cat((-b, a), -1) * angle.sin().repeat(1, 2) + x * angle.cos().repeat(1, 2)


SHAPES = cases(
    views=(views, f32(5, 37)),
    views_i8=(
        views_of := (lambda x: (x.t() + 1, x.flip(0), x[:, ::3] + 1, x.reshape(37, 5) * 2)),
        i8(5, 37),
    ),
    views_bf16=(views_of, bf16(5, 37)),
    views_f16=(views_of, f16(5, 37)),
    views_f64=(views_of, f64(5, 37)),
    views_bool=(lambda x: (x.t(), x.flip(0) & x, x[:, ::3], ~x.reshape(37, 5)), boolean(5, 37)),
    reshaped=(reshaped, f32(120)),
    padded=(padded, f32(5, 37)),
    padded_f16=(padded, f16(5, 37)),
    padded_bf16=(padded_any, bf16(5, 37)),
    padded_bool=(padded_any, boolean(5, 37)),
    padded_u8=(padded_any, u8(5, 37)),
    padded_i64=(padded_any, i64(5, 37)),
    padded_f64=(padded, f64(5, 37)),
    windows=(windows, f32(7, 37)),
    diagonals=(diagonals, f32(5, 37)),
    joined=(joined, f32(5, 37), f32(3, 37)),
    joined_f16=(joined, f16(5, 37), f16(3, 37)),
    joined_i32=(joined, i32(5, 37), i32(3, 37)),
    joined_bool=(
        lambda x, y: (torch.cat((x, y)), torch.cat((x[:3], y), 1).sum(1)),
        boolean(5, 37),
        boolean(3, 37),
    ),
    joined_mixed=(lambda x, y: torch.cat((x, y)), f32(5, 37), i64(3, 37)),
    joined_empty=(lambda x: torch.cat((x, x[:0], x * 2)), f32(3, 5)),
    parted=(parted, f32(5, 37)[:4]),
    factories=(factories, f32(5, 37)),
    causal=(causal, f32(3, 19)),
    folded_slices=(folded_slices, f32(5, 37)),
    gathered=(gathered, f32(5, 37), i64(4, below=5), i64(9, below=37)),
    gathered_bf16=(gathered, bf16(5, 37), i64(4, below=5), i64(9, below=37)),
    gathered_bool=(lambda x, rows: (x[rows], ~x[:, rows]), boolean(5, 37), i64(4, below=5)),
    gathered_i32_rows=(
        lambda x, rows: (x[rows], x.index_select(0, rows)),
        f32(5, 37),
        i32(4, below=5),
    ),
    folded_at=(
        folded_at,
        f32(5, 37),
        i64(9, 37, below=5),
        i64(5, 70, below=37),
        f32(9, 37),
        f32(5, 70),
    ),
    folded_at_sums=(
        lambda x, at, y: x + torch.zeros(1, 5).scatter_add(1, at, y.sum(1, keepdim=True)),
        f32(1, 5),
        i64(1, 1, below=5),
        f32(1, 5),
    ),
    folded_at_nothing=(
        lambda x, at, y: x.scatter_add(0, at, y) * 2,
        f32(5),
        i64(0, below=5),
        f32(0),
    ),
    gathered_by_counts=(gathered_by_counts, f32(3, 13), boolean(3, 13)),
    folded_at_flat=(lambda x, at, y: x.scatter_add(0, at, y), f32(11), i64(40, below=11), f32(40)),
    folded_at_bf16=(
        lambda x, at, y: x.scatter_add(1, at, y).exp(),
        bf16(3, 5, 20),
        i64(3, 9, 20, below=5),
        bf16(3, 9, 20),
    ),
    folded_at_i32=(
        lambda x, at, y: x.scatter_add(0, at, y),
        i32(6, 33),
        i64(8, 33, below=6),
        i32(8, 33),
    ),
    gathered_along=(gathered_along, f32(5, 37), i64(5, 9, below=37)),
    gathered_u8=(lambda x, at: x.gather(1, at), u8(5, 37), i64(5, 9, below=37)),
    gathered_f64=(lambda x, at: x.gather(1, at), f64(5, 37), i64(5, 9, below=37)),
    one_hot=(lambda at: F.one_hot(at, 11).float() * 2, i64(9, below=11)),
    positions_embedded=(
        lambda x, at: F.embedding(at, x) + x[torch.arange(6)],
        f32(11, 37),
        i64(6, below=11),
    ),
    written=(written, f32(5, 37), f32(2, 19)),
    rotated=(rotated, f32(2, 3, 8, 10)),
    as_strided=(lambda x: x.as_strided((4, 5), (7, 2), 3) * 2, f32(60)),
    transposed_out=(lambda x: (x * 2).t(), f32(5, 37)),
    contiguous=(lambda x: x.t().contiguous() + x.t().reshape(-1, 5), f32(5, 37)),
    empty_views=(
        lambda x: (x[:, :0] + 1, x[5:].sum(0), torch.cat((x[:0], x)), F.pad(x[:0], (0, 0, 1, 1))),
        f32(5, 3),
    ),
    flipped_sum=(lambda x: (x.flip(1).sum(0), x.flip(0).cumsum(0)), f32(5, 37)),
    sliced_input=(lambda x: (x.t()[::2].sum(1), x.reshape(-1)[::7]), f32(12, 37)[::2, ::3]),
    movedim=(lambda x: x.movedim(0, 2).flatten(1).softmax(1), f32(3, 4, 5)),
    pixel_shuffle=(lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 3)), f32(2, 8, 3, 9)),
    repeat_interleave=(lambda x: x.repeat_interleave(3, 1) * 2, f32(5, 7)),
    meshgrid=(lambda x: sum(torch.meshgrid(x, x + 1, indexing="ij")), f32(7)),
    masked_select_sum=(lambda x, m: x.masked_fill(m, 0).sum(1), f32(5, 37), boolean(5, 37)),
    upsampled=(lambda x: F.interpolate(x, scale_factor=2), f32(1, 2, 5, 6)),
)

# What runs as ATen's, between kernels of ours.
SHAPES += [
    replace(case, externs=True)
    for case in cases(
        call_of_im2col=(lambda x: F.unfold(x[None, None].exp(), 3, stride=2) * 2, f32(7, 37)),
        call_of_trace=(lambda x: (x + 1)[:5, :5].trace() * 2, f32(7, 37)),
        call_of_index_fill=(
            lambda x, i: (x * 2).t().index_fill(0, i, 3.0).sum(1),
            f32(7, 37),
            i64(3, below=7),
        ),
        call_of_qr=(lambda x: (torch.linalg.qr(x * 2).R + 1).cumsum(1), f32(7, 37)),
        call_of_svd=(lambda x: [t.abs() + 1 for t in torch.linalg.svd(x.t() + 1)], f32(3, 7)),
    )
]
