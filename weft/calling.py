"""The object that weft.compile returns: the callable, compiled for each signature it meets.

    f = compiled(module, build)      # build(Captured) -> Runner
    y = f(x)                         # as module(x): results, strides, aliasing, gradients
    f.reasons                        # why parts of the program run in eager

Dynamo turns Python into graphs and guards what it saw; each graph is captured and built. A call
that was one graph goes past Dynamo from then on. What cannot be compiled runs in eager, unless
`one_graph` is asked for: then it is a CaptureError.
"""

# This file reaches into torch: transforms and modes have no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Protocol
from weakref import finalize

import torch
from torch._C._dynamo.eval_frame import get_eval_frame_callback
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from weft.core.errors import WeftError
from weft.frontend.composites import in_transform, switched
from weft.frontend.graph import Captured, Runner
from weft.frontend.hot import Hot
from weft.frontend.promises import made
from weft.frontend.python import Frames
from weft.frontend.specialise import PREPARING, Prepared, Session
from weft.runtime.threads import quicken


class Backend(Protocol):
    """`build`, with what the compiled callable is asked about its programs."""

    def __call__(self, captured: Captured) -> Runner: ...
    def ir(self, programs: Sequence[Runner], level: str) -> str: ...
    def report(self, programs: Sequence[Runner], reasons: Sequence[str]) -> Any: ...
    def session(self, title: str) -> Session: ...


def compiled(fn: Any, build: Backend) -> Compiled:
    """`fn` compiled by `build`; a module gives a module, a function a function."""
    if isinstance(fn, Compiled):
        fn = fn._weft.fn
    if isinstance(fn, type) or not callable(fn):
        what = f"the class {fn.__name__}" if isinstance(fn, type) else repr(fn)
        raise WeftError(f"weft compiles a module or a function, not {what}")
    if isinstance(fn, torch.nn.Module):
        return _module_kind(type(fn))(fn, build)
    return Compiled(fn, build)


class Compilation:
    """A callable, what was compiled of it, and how the next call is likely to go."""

    def __init__(
        self, fn: Callable[..., Any], build: Backend, kind: type[Compiled] | None = None
    ) -> None:
        self.fn, self.build, self.kind = fn, build, kind
        self.session = build.session(getattr(fn, "__name__", type(fn).__name__))
        self.programs = self.session.programs  # what `build` returned, in order
        self.reasons = self.session.reasons  # why parts of the program run in eager
        self.frames = Frames(fn, self.session)
        self.hot: list[Hot] = []
        finalize(self, _part, self.hot).atexit = False  # else it takes the collector two rounds
        # What is expected next, what came last, and a frame for the guards: weft_calls.c reads it.
        no_keywords = dict[str, Any]()
        frame = {"args": (), "kwargs": no_keywords, "fn": fn}
        self.entry: list[Any] = [None, None, frame, fn, no_keywords]

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that is not the expected one: another that is known, or one for Dynamo."""
        if forward_ad._current_level < 0:
            frame = {"args": args, "kwargs": kwargs, "fn": self.fn}
            for hot in self.hot:
                if hot.fits(frame):
                    return self.follow(hot).run(*args, **kwargs)
        return self.through_dynamo(args, kwargs)

    def follow(self, hot: Hot) -> Hot:
        """`hot` is called now, after the last one."""
        if self.entry[1] is not None:
            self.entry[1].before(hot)
        self.entry[:2] = hot.then or hot, hot
        return hot

    def through_dynamo(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if in_transform() or torch.jit.is_tracing() or forward_ad._current_level >= 0:
            return self.fn(*args, **kwargs)
        before, session = self.frames.converted, self.session
        try:
            with made(session.promises, session.dynamic is not False, self.fn, args, kwargs):
                return self.frames.call(*args, **kwargs)
        finally:
            if self.frames.converted != before:
                alive = [hot for hot in self.hot if hot.guards.cache_entry is not None]
                self.hot[:] = alive + self.frames.learn()
                self.entry[:2] = None, None
                if self.kind is not None:
                    quicken(self.kind, NAMES)

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Compile for these arguments without a run, up to where Dynamo ends the first graph."""
        with switched(PREPARING.get, PREPARING.set, True), suppress(Prepared):
            self.through_dynamo(args, kwargs)

    def ir(self, level: str) -> str:
        """Text of a level of every graph compiled so far (forward, then backward)."""
        if not self.programs:
            raise WeftError("nothing is compiled yet: call it, or prepare(*args), first")
        return self.build.ir(self.programs, level)

    @property
    def report(self) -> Any:
        """Kernels, externs with reasons, memory and seconds per stage, over all graphs so far."""
        return self.build.report(self.programs, self.reasons)


def _part(calls: Sequence[Hot]) -> None:
    """Forget which call comes after which: calls in turn hold on to each other."""
    for hot in calls:
        hot.before(None)


def ours(f: Compiled, name: str) -> Any:
    """What a compiled callable is asked: `prepare` gives the callable itself again."""
    found = getattr(f.__dict__["_weft"], name)
    if name != "prepare":
        return found

    def prepare(*args: Any, **kwargs: Any) -> Compiled:
        found(*args, **kwargs)
        return f

    return prepare


OURS = ("prepare", "ir", "report", "programs", "reasons")
# What weft_calls.c names and reads, in its order.
NAMES = (
    *("_weft_entry", "_weft", "call", "cache_entry", "args", "kwargs", (), dict[str, Any]()),
    *(vars(torch.compiler), "_is_compiling_flag", vars(forward_ad), "_current_level"),
    get_eval_frame_callback,
)


class Compiled:
    """A compiled function: called as the function, and asked for `ir`, `report`, `reasons`.

    Where programs are C, so is the call of one that is known (`quicken`); `__call__` is what
    Dynamo follows, and how others are called.
    """

    _weft: Compilation

    def __init__(self, fn: Callable[..., Any], build: Backend) -> None:
        functools.update_wrapper(self, fn)
        self.__dict__["_weft"] = weft = Compilation(fn, build, type(self))
        self.__dict__["_weft_entry"] = weft.entry

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        weft = self._weft
        if is_compiling():  # inside somebody else's torch.compile
            return weft.fn(*args, **kwargs)
        hot = weft.entry[0]
        if hot is not None and forward_ad._current_level < 0:
            frame = {"args": args, "kwargs": kwargs, "fn": weft.fn}
            if hot.guards.cache_entry is not None and hot.check(frame):  # hot.fits(frame), inline
                weft.entry[:2] = hot.then or hot, hot
                return hot.run(*args, **kwargs)
        return weft.call(args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in OURS:
            return ours(self, name)
        raise AttributeError(f"{type(self).__name__} object has no attribute {name!r}")

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """A decorated method: the object is its first argument."""
        return self if owner is None else types.MethodType(self, owner)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self  # as functions are

    def __reduce__(self) -> Any:
        """By name where it took the function's place, else as the function, compiled again."""
        name = getattr(self, "__qualname__", "")
        try:
            named = attrgetter(name)(importlib.import_module(self.__module__))
        except (AttributeError, ImportError, ValueError):
            named = None
        return name if named is self else (compiled, (self._weft.fn, self._weft.build))


class CompiledModule(Compiled, torch.nn.Module):
    """A compiled module that is the module in every other respect: parameters, state, modes.

    Its own methods, such as `generate` of transformers, call the compiled module as their self.
    A name that the module has itself is the module's; `weft.report(f)` and `weft.ir(f, level)`
    give ours in any case.
    """

    def __init__(self, fn: torch.nn.Module, build: Backend) -> None:
        self.__dict__["_weft"] = weft = Compilation(fn, build, type(self))
        self.__dict__["_weft_entry"] = weft.entry

    def __getattr__(self, name: str) -> Any:
        weft = self.__dict__["_weft"]
        if name in OURS and not hasattr(weft.fn, name):
            return ours(self, name)
        if name == "__wrapped__":
            return weft.fn
        found = getattr(weft.fn, name)
        return types.MethodType(found.__func__, self) if _rebinds(found, weft.fn) else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._weft.fn, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._weft.fn, name)

    def __repr__(self) -> str:
        return f"compiled {self._weft.fn!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return compiled(copy.deepcopy(self._weft.fn, memo), self._weft.build)

    def __reduce__(self) -> Any:
        return compiled, (self._weft.fn, self._weft.build)


def _rebinds(found: Any, module: torch.nn.Module) -> bool:
    """Whether a method of the module takes the compiled one as self: `super()` would refuse it."""
    if is_compiling() or not isinstance(found, types.MethodType) or found.__self__ is not module:
        return False
    code = getattr(inspect.unwrap(found.__func__), "__code__", None)
    return code is not None and "__class__" not in code.co_freevars


def compilation(f: Any) -> Compilation:
    """What is behind a compiled callable; WeftError for any other object."""
    own = f.__func__ if isinstance(f, types.MethodType) else f
    found = getattr(own, "__dict__", {}).get("_weft")
    if not isinstance(found, Compilation):
        raise WeftError(f"{f!r} is not compiled by weft.compile")
    return found


def _delegated(name: str) -> Callable[..., Any]:
    def method(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
        module = self._weft.fn
        out = getattr(module, name)(*args, **kwargs)
        return self if out is module else out

    return method


for _name, _member in vars(torch.nn.Module).items():
    if callable(_member) and not _name.startswith("__"):
        type.__setattr__(CompiledModule, _name, _delegated(_name))


class _Kind(type):
    """The class of CompiledModule's classes: they have the names of the module's class too."""

    def __getattr__(cls, name: str) -> Any:
        kind = vars(cls).get("_weft_kind")
        if kind is None or name.startswith("__"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        return getattr(kind, name)


@functools.cache
def _module_kind(kind: type[torch.nn.Module]) -> type[CompiledModule]:
    """CompiledModule with the special methods of that kind of module: len(f), f[0], x in f."""
    classes = [c for c in kind.__mro__ if c not in torch.nn.Module.__mro__]
    names = {n for c in classes for n, m in vars(c).items() if n.startswith("__") and callable(m)}
    own = {n: _delegated(n) for n in names if not hasattr(CompiledModule, n)}
    return _Kind("CompiledModule", (CompiledModule,), {**own, "_weft_kind": kind})
