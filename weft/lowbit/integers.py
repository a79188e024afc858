"""Weights as integers for an engine that computes in them.

weft.export_weights(model, {"l0w": "i16*255"})["l0w"]      # a NumPy array of int16
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from weft.lowbit.storage import LowBitError

FORMAT = re.compile(r"([iu])(8|16|32)(?:\*(\d+(?:\.\d+)?))?")


def export_weights(module: nn.Module, formats: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Parameters and buffers by name, times a number, rounded to nearest, half to even.

    A format is an integer type and a factor: "i16*255", "i8*64", "u8", "i32". LowBitError names the
    parameter and the value if one is not finite or beyond the type's range.
    """
    tensors = module.state_dict()
    found: dict[str, np.ndarray] = {}
    for name, text in formats.items():
        form = FORMAT.fullmatch(text)
        if form is None:
            raise LowBitError(f'{name}: {text!r} is no format, as "i16*255" or "i8" is')
        if name not in tensors:
            raise LowBitError(f"there is no parameter {name}: one of {', '.join(tensors)}")
        dtype = np.dtype(f"{form[1]}{int(form[2]) // 8}")
        exact = tensors[name].detach().to(torch.float64).cpu().numpy()
        values = np.rint(exact * float(form[3] or 1))
        range_ = np.iinfo(dtype)
        bad = np.argwhere(~((values >= range_.min) & (values <= range_.max)))
        if len(bad):
            at = tuple(bad[0].tolist())
            raise LowBitError(
                f"{name}{[*at]} is {exact[at]:g}, and {values[at]:g} as {text} is beyond "
                f"{range_.min} to {range_.max}"
            )
        found[name] = values.astype(dtype)
    return found
