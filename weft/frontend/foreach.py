"""torch._foreach_*: the call for each tensor of its lists, which is what they mean.

_foreach_add_.Scalar([a, b], 1)      # aten.copy_(a, aten.add(a, 1)); the same of b
"""

# This file reaches into torch: operators have no public names for their schemas.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch._ops import OpOverload

from weft.core.errors import CaptureError

aten = torch.ops.aten

# The operator on one tensor, where its name is not the list's.
NAMES: dict[str, Callable[..., Any]] = {
    "norm": aten.linalg_vector_norm,
    "maximum.Scalar": aten.clamp_min,
    "minimum.Scalar": aten.clamp_max,
}


def is_foreach(op: OpOverload) -> bool:
    return op._schema.name.startswith("aten::_foreach_")


def for_each(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Its results, one per tensor of the first list; CaptureError where it is no such call."""
    name = op._schema.name.removeprefix("aten::_foreach_").removesuffix("_")
    form = f"{name}.{op._overloadname.removesuffix('List')}"
    one = NAMES.get(form) or NAMES.get(name) or getattr(aten, name, None)
    if one is None:
        raise CaptureError(f"{op} has no form for one tensor")
    length = len(next(a for a in args if isinstance(a, list | tuple)))  # type: ignore[arg-type]
    results: list[Any] = []
    for i in range(length):  # what one writes the next may read
        results.append(_call(one, [_item(a, i) for a in args], kwargs))
        if op._schema.is_mutable:
            aten.copy_(args[0][i], results[i])
    return None if op._schema.is_mutable else results


def _item(argument: Any, i: int) -> Any:
    return cast(Any, argument)[i] if isinstance(argument, list | tuple) else argument


def _call(one: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """addcmul and addcdiv take as a keyword what their lists take by position."""
    if one in (aten.addcmul, aten.addcdiv) and len(args) > 3:
        return one(*args[:3], value=args[3], **kwargs)
    return one(*args, **kwargs)
