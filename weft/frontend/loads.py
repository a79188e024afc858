"""Dynamo's code of a call without its loads, where a guard has found the same tensors just before.

check, call = handed_on(guards.root.check, tensors, positions, program)
code = without_loads(code, "__compiled_fn_1", 1000)     # call() in place of __compiled_fn_1(...)

Of a step of AdamW over 200 tensors Dynamo's code loads 1,000 by their paths, in 57 us.
"""

# This file reaches into torch: Dynamo has no public names for its code.
# pyright: reportPrivateUsage=false

import types
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from threading import get_ident, local
from typing import Any

from torch._dynamo.bytecode_transformation import create_call_function, transform_code_object

from weft.frontend.parts import FX
from weft.frontend.tensor_guards import Tensors

Check = Callable[[Mapping[str, Any]], bool]
# What only reads, but for the variables that Dynamo stores for itself.
LOADS = """LOAD_CONST LOAD_FAST LOAD_GLOBAL LOAD_ATTR LOAD_DEREF BINARY_SUBSCR COPY STORE_FAST
PUSH_NULL PRECALL CALL""".split()


def sources(graph: FX) -> list[Any]:
    """Where Dynamo finds the inputs of a graph that it has just made."""
    inputs = (p.meta.get("grapharg") for p in graph.graph.find_nodes(op="placeholder"))
    return [getattr(arg, "source", None) for arg in inputs]


def positions(inputs: Sequence[Any], tensors: Tensors) -> list[int]:
    """Which of the tensors the inputs are that sources name; none where some are others."""
    number = {source: i for i, source in enumerate(tensors.sources)}
    found = [number[source] for source in inputs if source in number]
    return found if len(found) == len(inputs) > 1 else []


def without_loads(code: types.CodeType, name: str, count: int) -> types.CodeType | None:
    """The code in which `name`, of `count` arguments, has none; None where it is less plain.

    It is where what leads to the call only loads, and what it stores is only deleted later.
    """
    done: list[bool] = []

    def edit(code: list[Any], options: dict[str, Any]) -> None:
        start = [i for i, x in enumerate(code) if x.opname == "LOAD_GLOBAL" and x.argval == name]
        calls = [i for i, x in enumerate(code) if x.opname == "CALL" and x.arg == count]
        jumps = any(x.target is not None or x.exn_tab_entry is not None for x in code)
        if len(start) != 1 or len(calls) != 1 or calls[0] < start[0] or jumps:
            return
        loads, rest = code[start[0] + 1 : calls[0] + 1], code[calls[0] + 1 :]
        stored = {x.argval for x in loads if x.opname == "STORE_FAST"}
        kept = [x for x in rest if not (x.opname == "DELETE_FAST" and x.argval in stored)]
        names = {x.argval for x in kept if x.opname.endswith("_FAST")}
        if any(x.opname not in LOADS for x in loads) or not stored.isdisjoint(names):
            return
        code[start[0] + 1 :] = [*create_call_function(0, False), *kept]
        done.append(True)

    made, _ = transform_code_object(code, edit)  # type: ignore[arg-type]
    return made if done else None


def handed_on(
    check: Check, tensors: Tensors, places: Sequence[int], program: Callable[..., Any]
) -> tuple[Check, Callable[[], Any]]:
    """The check, and a call after it of the program with the tensors that it has found.

    Between the two, and within each, a handler of a signal or __del__ may have a pair of its own.
    """
    pick, found, waiting = itemgetter(*places), tensors.found, _Waiting()

    def checked(frame: Mapping[str, Any]) -> bool:
        thread = get_ident()
        outer = found.get(thread)
        found[thread] = ()
        try:
            passed = check(frame)
            if passed:
                waiting.calls.append(found[thread])
            return passed
        finally:
            if outer is None:
                del found[thread]
            else:
                found[thread] = outer

    return checked, lambda: program(*pick(waiting.calls.pop()))


class _Waiting(local):
    """What checks of this thread have found for calls to come, the next one last."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
