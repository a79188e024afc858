"""Steps that ended at an optimiser without state in an earlier process: no trace up to there.

first = FirstSteps(store, fn)
first.ends(frame)                # the optimiser, where it is noted of such calls and has no state
first.note(frame, "L['fn'].__closure__[0].cell_contents")

What decides whether a call runs in eager is the optimiser itself, as in a trace: the note says
where it is, and that such calls reach its step. Where they do not any more, one runs in eager.
"""

import hashlib
import sys
from collections.abc import Mapping
from types import CodeType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from weft.frontend.stored import Store


class FirstSteps:
    """The notes of one function; none without a store, or for what has no code in Python."""

    def __init__(self, store: Store | None, fn: Any) -> None:
        code = getattr(fn.forward if isinstance(fn, torch.nn.Module) else fn, "__code__", None)
        self.store = store if isinstance(code, CodeType) else None
        self.code = code

    def ends(self, frame: Any) -> torch.optim.Optimizer | None:
        """The optimiser whose first step such a call begins; None where nothing says so."""
        data = None if self.store is None else self.store.read(self._key(frame))
        if data is None:
            return None
        try:
            found = eval(data.decode(), {}, {"L": frame.f_locals, "G": _Globals(frame.f_globals)})
        except Exception:  # whatever an object there makes of being asked for another's parts
            return None
        return found if isinstance(found, torch.optim.Optimizer) and not found.state else None

    def note(self, frame: Any, source: str) -> None:
        """A call ended at a first step of the optimiser there, in Dynamo's terms."""
        if self.store is not None:
            self.store.write(self._key(frame), source.encode())

    def _key(self, frame: Any) -> str:
        """Of the function's code and of what it is called with: kinds of tensors, and numbers."""
        assert self.store is not None and self.code is not None
        c, given = self.code, frame.f_locals
        said = c.co_filename, c.co_firstlineno, c.co_name, c.co_code, c.co_names
        text = "\n".join(map(repr, (*said, _kinds(given), torch.__version__, *self.store.facts)))
        return hashlib.sha256(f"first step\n{text}".encode()).hexdigest()


class _Globals(dict[str, Any]):
    """The globals of a frame; as Dynamo names them, modules of functions that it calls as well."""

    def __missing__(self, name: str) -> Any:
        return sys.modules[name.removeprefix("__import_").replace("_dot_", ".")]


def _kinds(given: Mapping[str, Any]) -> list[Any]:
    """What arguments are like: the call of an epoch's last batch may do other things."""
    found: list[Any] = []
    for value in tree_leaves((given.get("args"), given.get("kwargs"))):
        if isinstance(value, torch.Tensor):
            found.append((value.dtype, tuple(value.shape)))
        else:
            plain = value is None or type(value) in (bool, int, float, str)
            found.append(value if plain else type(value).__qualname__)
    return found
