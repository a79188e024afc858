"""A compiled call that needs no Dynamo: its guards, its code, and that code as data for C.

hot = Hot(guards, check, check, run, direct(code, "__compiled_fn_1", program, scope))
if hot.fits({"args": (x,), "kwargs": {}, "fn": fn}):
    hot.run(x)                        # what runtime/weft_calls.c does without a frame of Python's
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from weft.frontend.loads import Check
from weft.frontend.plans import plan_of

# What a call has for C: a plan, its keys, and what the builtin that is its program is made of.
Direct = tuple[bytes | None, tuple[Any, ...], tuple[Any, ...]]
NO_PLAN: Direct = None, (), ()


def direct(code: types.CodeType, name: str, run: Any, scope: Mapping[str, Any]) -> Direct:
    """The code as a plan, where it is no more and the program of that name a builtin of ours."""
    own = isinstance(run, types.BuiltinFunctionType) and run.__name__ == "program"
    plan = plan_of(code, name, scope) if own else None
    return NO_PLAN if plan is None else (plan.packed(), plan.keys, getattr(run, "__self__"))  # noqa: B009


class Hot(list[Any]):
    """One compiled call: `check` is Dynamo's guards, `run` the code that Dynamo made.

    `check` of a call for any size, unlike the `whole` one, now and then fails: one for just these
    sizes is looked for. Each that passes is followed by a run. `guards` knows whether something
    that it looks at is gone, and whether Dynamo was reset. `then` was right after it, the last
    time. With a plan (plans.py), C calls the `program` without `run`. It is a list for C's sake.
    """

    guards, check, then = (property(itemgetter(i)) for i in (0, 1, 3))

    def __init__(self, guards: Any, whole: Check, check: Check, run: Any, direct: Direct) -> None:
        super().__init__((guards, check, run, None, *direct))
        self.whole = whole

    def fits(self, frame: Mapping[str, Any]) -> bool:
        return self.guards.cache_entry is not None and self.whole(frame)

    @property
    def run(self) -> Callable[..., Any]:
        return self[2]

    @run.setter
    def run(self, run: Callable[..., Any]) -> None:
        """Another function, for which there is no plan."""
        self[2], self[4:] = run, NO_PLAN

    def before(self, then: Hot | None) -> None:
        self[3] = then


def mostly(check: Check) -> Check:
    """The check, but False once in 31 times."""
    turns = itertools.cycle([False] + [True] * 30)  # an odd period, as calls often come in pairs
    return lambda frame: next(turns) and check(frame)
