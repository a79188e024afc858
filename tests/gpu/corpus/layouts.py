"""Every layout of an input, through programs that read it along and across its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from tests.agree.inputs import Case, Input, f32, tensor

# A tensor [34, 66], but for expanded ones a slice of a larger one or a view of a smaller.
LAYOUTS: dict[str, Callable[[torch.dtype], Input]] = {
    "transposed": lambda d: tensor(d, 66, 34).t(),
    "strided": lambda d: tensor(d, 68, 132)[::2, ::2],
    "sliced": lambda d: tensor(d, 37, 75)[2:36, 5:71],
    "aligned slice": lambda d: tensor(d, 34, 80)[:, 8:74],
    "expanded rows": lambda d: tensor(d, 1, 66).expand(34, 66),
    "expanded columns": lambda d: tensor(d, 34, 1).expand(34, 66),
    "flipped rows": lambda d: tensor(d, 34, 66).flip(0),
    "overlapping": lambda d: tensor(d, 200).as_strided((34, 66), (3, 1)),
}
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "pointwise": lambda x: (x * 2 + 1).relu(),
    "copy": lambda x: x.contiguous().clone(memory_format=torch.contiguous_format),
    "transpose": lambda x: x.t().contiguous() + 1,
    "rows": lambda x: (x.sum(1), x.amax(1)),
    "columns": lambda x: (x.sum(0), x.argmax(0)),
    "softmax": lambda x: x.float().softmax(-1),
    "product": lambda x: x @ x.t(),
}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
IMAGES: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x, w: F.silu(x) + 1,
    "convolution": lambda x, w: F.conv2d(x, w, padding=1),
    "group norm": lambda x, w: F.group_norm(x, 2),
    "batch norm": lambda x, w: F.batch_norm(x, None, None, training=True),
    "pool": lambda x, w: F.max_pool2d(x, 3, 2, 1),
    "average": lambda x, w: F.adaptive_avg_pool2d(x, 1).flatten(1),
    "to rows": lambda x, w: x.permute(0, 2, 3, 1).reshape(-1, x.shape[1]) * 2,
    "upsampled": lambda x, w: F.interpolate(x, scale_factor=2.0),
}
CHANNELS_LAST = f32(2, 9, 11, 6).permute(0, 3, 1, 2)


def add_in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[:, 1::2] += y[:, ::2]
    return x.mul_(2)


LAYOUT_CASES = [
    *(
        Case(f"{program} of {layout}, {name}", fn, (make(dtype),))
        for layout, make in LAYOUTS.items()
        for program, fn in PROGRAMS.items()
        for name, dtype in DTYPES.items()
        if name == "f32" or program in ("pointwise", "rows", "product")
    ),
    *(
        Case(f"{n} of channels last", f, (CHANNELS_LAST, f32(4, 6, 3, 3)))
        for n, f in IMAGES.items()
    ),
    Case("written in place", add_in_place, (f32(34, 66), f32(66, 34).t())),
    Case("written in place, transposed", add_in_place, (f32(66, 34).t(), f32(34, 66))),
    Case("mixed layouts", lambda x, y, z: x * y + z, (f32(66, 34).t(), f32(34, 1), f32(66))),
    Case("mixed dtypes", lambda x, y: (x * y, x > y), (f32(34, 66), tensor(torch.int64, 34, 66))),
    Case("misaligned", lambda x: x * 2 + 1, (f32(1025)[1:],)),
    Case("misaligned, bf16", lambda x: x.exp(), (tensor(torch.bfloat16, 34, 65)[:, 1:],)),
]
