"""Library calls (externs): their arguments as Python text, and their results as buffers.

express({"dtype": "float16"}, tensor, ns) # "k0", with ns["k0"] = torch.float16
bind(result, shape, strides, dtype, storages([x]))   # the result as memory of its own
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, cast

import torch

from weft.core.errors import ExternMismatch, WeftError
from weft.library.calls import TORCH_DTYPES, torch_object

Extents = tuple[int, ...]


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of a buffer: weft's name, or torch's own for those only externs use."""
    found = TORCH_DTYPES.get(name, getattr(torch, name, None))
    if not isinstance(found, torch.dtype):
        raise WeftError(f"{name} is not an element type")
    return found


def express(tree: Any, tensor: Callable[[str], str], namespace: dict[str, Any]) -> str:
    """Python text for an argument tree: tensors by `tensor`, other objects put in `namespace`."""
    if isinstance(tree, list | tuple):
        items = cast(Sequence[Any], tree)
        return "[" + ", ".join(express(item, tensor, namespace) for item in items) + "]"
    if not isinstance(tree, dict):
        return repr(tree)
    leaf = cast(dict[str, Any], tree)
    if "tensor" in leaf:
        return tensor(leaf["tensor"])
    if "size" in leaf:
        return str(leaf["size"])
    name = f"k{len(namespace)}"
    namespace[name] = torch_object(*next(iter(leaf.items())))
    return name


def storages(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Where the memory of tensors begins."""
    return {t.untyped_storage().data_ptr() for t in tensors}


def bind(
    result: torch.Tensor,
    shape: Extents,
    strides: Extents,
    dtype: torch.dtype,
    arguments: Collection[int],
    settled: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """An operator's result as memory of its own with the layout the spec promises to others.

    It is copied when its strides differ, or when it is a view of one of the `arguments`, of which
    these are the storages, as their memory may be used again for something else. One that a
    collective still writes is `settled` before.
    """
    check(result, shape, dtype)
    if result.stride() == strides and result.untyped_storage().data_ptr() not in arguments:
        return result
    result = result if settled is None else settled(result)
    return result.new_empty_strided(shape, strides).copy_(result)


def store(result: torch.Tensor, into: torch.Tensor) -> None:
    """Copy an operator's result into a buffer that already has memory."""
    check(result, tuple(into.shape), into.dtype)
    into.copy_(result)


def check(result: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """ExternMismatch unless the result is as in the spec: copy_ would broadcast and convert."""
    if tuple(result.shape) != shape or result.dtype != dtype:
        found, wanted = f"{result.dtype}{list(result.shape)}", f"{dtype}{list(shape)}"
        raise ExternMismatch(f"an extern returned {found} where the launch spec says {wanted}")
