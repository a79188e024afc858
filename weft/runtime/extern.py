"""Operators that torch runs: their arguments as JSON, as Python text, and binding their results.

encode([x, 2, torch.float16], name_of)    # [{"buffer": "x"}, 2, {"dtype": "float16"}]
operator("aten.sort.default")             # torch.ops.aten.sort.default
express({"dtype": "float16"}, tensor, ns) # "k0", with ns["k0"] = torch.float16
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from weft.core.errors import UnsupportedOpError, WeftError

NAMES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "bool": torch.bool,
}
TAGS: dict[str, type] = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of a buffer: weft's name, or torch's own for those only externs use."""
    found = NAMES.get(name, getattr(torch, name, None))
    if not isinstance(found, torch.dtype):
        raise WeftError(f"{name} is not an element type")
    return found


def operator(target: str) -> Callable[..., Any]:
    """The operator overload of that dotted name."""
    found: Any = torch.ops
    try:
        for part in target.split("."):
            found = getattr(found, part)
    except AttributeError as e:
        raise UnsupportedOpError(f"this torch has no operator {target}") from e
    return cast(Callable[..., Any], found)


def encode(value: Any, name_of: Callable[[Any], str | None]) -> Any:
    """An operator's argument as JSON; `name_of` names the buffer of what stands for a tensor."""
    name = name_of(value)
    if name is not None:
        return {"buffer": name}
    for tag, kind in TAGS.items():
        if isinstance(value, kind):
            return {tag: str(value).removeprefix("torch.")}
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case complex():
            return {"complex": [value.real, value.imag]}
        case torch.device():
            return {"device": str(value)}
        case list() | tuple():
            return [encode(item, name_of) for item in cast(Sequence[Any], value)]
        case _:
            raise UnsupportedOpError(f"an extern argument of type {type(value).__name__}")


def decode(tree: dict[str, Any]) -> Any:
    """The value of a tagged leaf that is not a buffer."""
    ((tag, value),) = tree.items()
    if tag in TAGS:
        return getattr(torch, value)
    match tag:
        case "device":
            return torch.device(value)
        case "float":
            return float(value)
        case "complex":
            return complex(*value)
        case _:
            raise WeftError(f"unknown tag {tag!r} in the arguments of an extern")


def express(tree: Any, tensor: Callable[[str], str], namespace: dict[str, Any]) -> str:
    """Python text for an argument tree: tensors by `tensor`, other objects put in `namespace`."""
    if isinstance(tree, list | tuple):
        items = cast(Sequence[Any], tree)
        return "[" + ", ".join(express(item, tensor, namespace) for item in items) + "]"
    if not isinstance(tree, dict):
        return repr(tree)
    leaf = cast(dict[str, Any], tree)
    if "buffer" in leaf:
        return tensor(leaf["buffer"])
    name = f"k{len(namespace)}"
    namespace[name] = decode(leaf)
    return name


def bind(
    result: torch.Tensor,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    arguments: tuple[torch.Tensor, ...],
) -> torch.Tensor:
    """An operator's result as memory of its own with the layout the spec promises to others.

    It is copied when its strides differ, or when it is a view of an argument, whose memory may be
    used again for something else.
    """
    check(result, shape, dtype)
    if result.stride() == strides:
        memory = result.untyped_storage().data_ptr()
        if all(memory != a.untyped_storage().data_ptr() for a in arguments):
            return result
    fresh = torch.empty_strided(shape, strides, dtype=dtype, device=result.device)
    return fresh.copy_(result)


def store(result: torch.Tensor, into: torch.Tensor) -> None:
    """Copy an operator's result into a buffer that already has memory."""
    check(result, tuple(into.shape), into.dtype)
    into.copy_(result)


def check(result: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """The spec must have foretold the result: copy_ would broadcast and convert in silence."""
    if tuple(result.shape) != shape or result.dtype != dtype:
        found, wanted = f"{result.dtype}{list(result.shape)}", f"{dtype}{list(shape)}"
        raise WeftError(f"an extern returned {found} where the launch spec says {wanted}")
