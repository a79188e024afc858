"""Calls of torch's operators: the objects in their arguments, as JSON and as themselves.

operator("aten.sort.default")             # torch.ops.aten.sort.default
encode([x, 2, torch.float16], number)     # [{"tensor": 0}, 2, {"dtype": "float16"}]
arguments.bind([x], torch_object)         # [x, 2, torch.float16] again
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, reduce
from typing import Any, cast

import torch
from torch.autograd.graph import increment_version

import weft.library.attention  # pyright: ignore[reportUnusedImport]  # an operator
import weft.library.ctc  # pyright: ignore[reportUnusedImport]  # an operator
import weft.library.lstm  # pyright: ignore[reportUnusedImport]  # an operator
import weft.library.philox  # pyright: ignore[reportUnusedImport]  # an operator
import weft.library.recurrent  # noqa: F401  # pyright: ignore[reportUnusedImport]  # an operator
from weft.core.errors import UnsupportedOpError
from weft.core.types import DTYPES

# NumPy and torch call them alike; torch knows no pairs.
TORCH_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, d.numpy.name) for name, d in DTYPES.items() if d.kind != "pair"
}
TAGS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
MADE = {"device": torch.device, "float": float, "complex": lambda parts: complex(*parts)}


WROTE = "weft.wrote"


def wrote(tensors: Iterable[torch.Tensor]) -> None:
    """Tell torch that kernels have written to these tensors: each has another version."""
    tensors = tensors if isinstance(tensors, list | tuple) else list(tensors)
    try:
        increment_version(tensors)
    except RuntimeError:  # some are of inference mode; a version that has moved twice has moved
        increment_version([t for t in tensors if not t.is_inference()])


@cache
def operator(target: str) -> Any:
    """The operator overload of that dotted name, or `wrote`."""
    if target == WROTE:
        return wrote
    try:
        return reduce(getattr, target.split("."), torch.ops)
    except AttributeError as error:
        raise UnsupportedOpError(f"this torch has no operator {target}") from error


def encode(value: Any, place: Callable[[Any], dict[str, Any] | None]) -> Any:
    """An argument as JSON; `place` is what stands for a tensor, or for a size that is no number.

    It is None for all other values.
    """
    found = place(value)
    if found is not None:
        return found
    for tag, kind in TAGS.items():
        if isinstance(value, kind):
            return {tag: str(value).removeprefix("torch.")}
    match value:
        case None | bool() | int() | str():
            return value
        case torch.SymFloat():  # of a size: torch guards that it stays
            return encode(float(value), place)
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case complex():
            return {"complex": [value.real, value.imag]}
        case torch.device():
            return {"device": str(value)}
        case list() | tuple():
            return [encode(item, place) for item in cast(Sequence[Any], value)]
        case _:
            raise UnsupportedOpError(f"an argument of type {type(value).__name__}")


def torch_object(tag: str, value: Any) -> Any:
    """What a tagged leaf stands for, unless it is a tensor."""
    if tag == "size":
        return value
    if tag in TAGS:
        return getattr(torch, value)
    if tag not in MADE:
        raise UnsupportedOpError(f"unknown tag {tag!r} in the arguments of an operator")
    return MADE[tag](value)
