"""What Dynamo gets silently wrong, mended; importing this does it, for every backend.

Each mend is left out by a torch that does the thing otherwise; the tests then say whether it does
it right.
"""

# This file reaches into torch: Dynamo has no public names for how it follows Python.
# pyright: reportPrivateUsage=false

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch._dynamo.variables import dicts
from torch._dynamo.variables.tensor import TensorVariable


def _guard_absent_keys() -> None:
    """Guard that d[key] found nothing, as Dynamo does where `key in d` did.

    os.environ.get(name) is such a read: without the guard a variable set later is not seen.
    """
    kind, name = dicts.ConstDictVariable, "getitem_const_raise_exception_if_absent"
    plain = getattr(kind, name, None)
    # The second is its name in torch 2.11.
    hashable = getattr(dicts, "HashableTracker", None) or getattr(kind, "_HashableTracker", None)
    if plain is None or hashable is None:
        return

    def read(self: Any, tx: Any, arg: Any) -> Any:
        if self.source is not None and hashable(arg) not in self.items:
            self.install_dict_contains_guard(tx, [arg])
        return plain(self, tx, arg)

    setattr(kind, name, read)


def _see_new_shapes() -> None:
    """Read a tensor's shape again wherever it may be another by now.

    Dynamo keeps the one it had: x.shape after x.unsqueeze_(0), by whatever name, is the old one.
    """
    for name in ("var_getattr", "call_method", "unpack_var_sequence"):
        plain = getattr(TensorVariable, name, None)
        if plain is not None and hasattr(TensorVariable, "synchronize_attributes"):
            setattr(TensorVariable, name, _synchronized(plain))


def _synchronized(plain: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(plain)
    def read(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        fake = self.proxy.node.meta.get("example_value")
        if self._size is not None and isinstance(fake, torch.Tensor) and _differs(self, fake):
            self.synchronize_attributes(tx)
        return plain(self, tx, *args, **kwargs)

    return read


def _differs(known: Any, fake: torch.Tensor) -> bool:
    strides = tuple(fake.stride()) if fake.layout is torch.strided else None
    return known._size != tuple(fake.shape) or known.stride not in (None, strides)


_guard_absent_keys()
_see_new_shapes()
