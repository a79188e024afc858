"""Programs that no suite has (forms.toml): every form of an op, odd sizes, long and short axes.

forms()["conv2d 3x3 s2 64-128@56"]     # the text of a program, as `weft run -c` takes it
A name says what is in it: `grad` is of a forward and a backward pass, dtypes are f32 unless named,
and a shape is written 4x64x56x56.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weft.cli.workloads import tomllib

GRAD = "grad "  # how the name of a form with its backward pass begins


def forms() -> dict[str, str]:
    """All of them, by name; a name that two have would be an error of that file."""
    data = tomllib.loads((Path(__file__).parent / "forms.toml").read_text())
    rows = [(name, text) for part in ("forward", "both") for name, text in data[part].items()]
    rows += [
        (GRAD + name, text) for part in ("both", "backward") for name, text in data[part].items()
    ]
    found = dict(rows)
    assert len(found) == len(rows), "two forms have one name"
    return found


class Graded:
    """Runs a function and its backward pass, to all arguments and parameters that are floats.

    The backward pass begins with one random gradient.
    """

    def __init__(self, function: Any, args: Sequence[Any]) -> None:
        given = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        if isinstance(function, nn.Module):
            given += function.parameters()
        self.given = [tensor.requires_grad_() for tensor in given]
        self.weights = dict[torch.Size, torch.Tensor]()

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        out = function(*args)
        out = out[0] if isinstance(out, tuple) else out
        if out.shape not in self.weights:
            self.weights[out.shape] = torch.randn_like(out)
        return torch.autograd.grad(out, self.given, self.weights[out.shape])
