"""The module of an ONNX model: parameters, buffers, and the text that computes it.

print(module.code)      # one line of torch calls for each node
"""

from __future__ import annotations

import itertools
import linecache
import re
import traceback
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from weft.core.errors import WeftError
from weft.onnx.types import OnnxError, stored

NUMBER = itertools.count()


@dataclass(frozen=True)
class Port:
    """An input or output of the graph: its element type (0 if it is no tensor) and its shape.

    A size is an int, a name, or None; the shape is None where the model states none.
    """

    name: str
    element: int
    shape: tuple[int | str | None, ...] | None

    def example(self) -> torch.Tensor:
        """A random tensor that fits, with 2 for every size that the model leaves open."""
        sizes = [d if isinstance(d, int) else 2 for d in self.shape or ()]
        if self.shape is None or not self.element:
            raise OnnxError(
                f"no example for the input {self.name}: the model states no shape of it"
            )
        dtype = stored(self.element)
        random = torch.randn(sizes) if dtype.is_floating_point else torch.randint(0, 2, sizes)
        return random.to(dtype)


class OnnxModule(nn.Module):
    """The graph's inputs in order -> its output, or a tuple of several.

    A size that the model names may be any at each call. An integer input that decides shapes may
    be given as a Python number or a tuple. OnnxError names the node that inputs do not fit.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title
        self.code = ""
        self.inputs: tuple[Port, ...] = ()
        self.outputs: tuple[Port, ...] = ()
        self.number_inputs: frozenset[str] = frozenset()  # that are read as Python numbers
        self.file = f"<onnx {title} {next(NUMBER)}>"
        self.run: Any = None

    def define(self, code: str, namespace: dict[str, Any]) -> None:
        """Takes the text of `forward`, and what its names mean."""
        self.code = code
        linecache.cache[self.file] = len(code), None, code.splitlines(keepends=True), self.file
        exec(compile(code, self.file, "exec"), namespace)
        self.run = namespace["forward"]

    def forward(self, *inputs: Any) -> Any:
        if len(inputs) != len(self.inputs):
            names = ", ".join(port.name for port in self.inputs)
            raise OnnxError(
                f"{self.title} takes {names}: {len(self.inputs)} inputs, not {len(inputs)}"
            )
        for value, port in zip(inputs, self.inputs, strict=True):
            check(value, port)
        if torch.compiler.is_compiling():
            return self.run(self, *inputs)
        try:
            return self.run(self, *inputs)
        except Exception as error:
            raise self.located(error) from error

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        """Random inputs of the shapes that the model states."""
        return tuple([port.example() for port in self.inputs])

    def located(self, error: Exception) -> OnnxError:
        """The error with the node at whose line it came up."""
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == self.file]
        line = (frames[-1].line or "") if frames else ""
        node = re.search(r"  # (.*)$", line)
        name = node[1] if node else self.title
        text = error.message if isinstance(error, WeftError) else str(error)
        sentence = (text.strip().splitlines() or [type(error).__name__])[0]
        return OnnxError(f"{name}: {sentence}", line.split("  # ")[0] or None)


def check(value: Any, port: Port) -> None:
    """OnnxError if a tensor's rank or a size is not what the model states of an input."""
    if port.shape is None or not isinstance(value, torch.Tensor):
        return
    fits = len(port.shape) == value.dim() and all(
        not isinstance(d, int) or d == n for d, n in zip(port.shape, value.shape, strict=False)
    )
    if not fits:
        wanted = ", ".join("?" if d is None else str(d) for d in port.shape)
        raise OnnxError(f"the input {port.name} is of shape [{wanted}], not {list(value.shape)}")
