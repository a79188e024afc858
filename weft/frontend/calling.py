"""The object that weft.compile returns: the callable, specialised for each signature it meets.

    f = compiled(module, build)      # build(Captured) -> Runner
    y = f(x)                         # as module(x): results, strides, aliasing, gradients
    f.reasons                        # why calls went another way than one captured graph

A call is captured directly; where gradients are wanted AOTAutograd makes a forward and a backward
graph; what cannot be captured goes through Dynamo, which ends in the same `build`. What Dynamo
cannot follow either runs as it is, unless `one_graph` is asked for: then it is a CaptureError.
"""

from __future__ import annotations

import copy
import functools
import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch._dynamo as dynamo
from torch._dynamo.exc import TorchDynamoException
from torch.utils._pytree import tree_flatten

from weft.core.errors import CaptureError, WeftError
from weft.frontend.autograd import Differentiable, graph_backend
from weft.frontend.capture import capture, homes_of, modules_of
from weft.frontend.entry import MISS, Entry, direct_entry
from weft.frontend.graph import Captured, Runner
from weft.frontend.signature import State, call_key


class Backend(Protocol):
    """`build`, with what the compiled callable is asked about its programs."""

    def __call__(self, captured: Captured) -> Runner: ...
    def ir(self, programs: Sequence[Runner], level: str) -> str: ...
    def report(self, programs: Sequence[Runner], reasons: Sequence[str]) -> Any: ...


def compiled(fn: Any, build: Backend, one_graph: bool = False) -> Compiled:
    """`fn` compiled by `build`; a module gives a module, a function a function."""
    if isinstance(fn, Compiled):
        fn = fn.__wrapped__
    if isinstance(fn, type) or not callable(fn):
        what = f"the class {fn.__name__}" if isinstance(fn, type) else repr(fn)
        raise WeftError(f"weft compiles a module or a function, not {what}")
    kind = CompiledModule if isinstance(fn, torch.nn.Module) else Compiled
    return kind(fn, build, one_graph)


class Compiled:
    """A callable and its specialisations.

    `programs` are what `build` returned, in order; `reasons` say why an entry is not direct.
    """

    __wrapped__: Callable[..., Any]
    programs: list[Runner]
    reasons: list[str]
    _raw_build: Backend
    _one_graph: bool
    _entries: dict[Any, list[Entry]]
    _hot: Callable[[tuple[Any, ...]], Any]
    _lock: threading.RLock
    _through_dynamo: Any

    def __init__(self, fn: Callable[..., Any], build: Backend, one_graph: bool) -> None:
        # Around __setattr__, which a compiled module hands to the module.
        if not isinstance(fn, torch.nn.Module):
            functools.update_wrapper(self, fn)
        fields = self.__dict__
        fields.update(__wrapped__=fn, _raw_build=build, _one_graph=one_graph)
        fields.update(programs=[], reasons=[], _entries={}, _lock=threading.RLock())
        fields.update(_hot=lambda args: MISS, _through_dynamo=None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            out = self._hot(args)
            if out is not MISS:
                return out
        return self._find_and_call(args, kwargs)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """A decorated method is compiled once for each object it is called on."""
        if owner is None:
            return self
        name = f"__weft_{self.__wrapped__.__name__}"
        bound = owner.__dict__.get(name)
        if bound is None:
            method = self.__wrapped__.__get__(owner, kind)
            bound = owner.__dict__[name] = Compiled(method, self._raw_build, self._one_graph)
        return bound

    def prepare(self, *args: Any, **kwargs: Any) -> Compiled:
        """Compile for these arguments without a run, where one captured graph will do."""
        self._entry(args, kwargs)
        if not self.programs:  # Dynamo and AOTAutograd compile when they are called
            self(*args, **kwargs)
        return self

    def ir(self, level: str) -> str:
        """Text of a level of every graph compiled so far (forward, then backward)."""
        if not self.programs:
            raise WeftError("nothing is compiled yet: call it, or prepare(*args), first")
        return self._raw_build.ir(self.programs, level)

    @property
    def report(self) -> Any:
        """Kernels, externs with reasons, memory and seconds per stage, over all graphs so far."""
        return self._raw_build.report(self.programs, self.reasons)

    def _find_and_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.compiler.is_compiling():  # inside somebody else's torch.compile
            return self.__wrapped__(*args, **kwargs)
        entry, flat = self._entry(args, kwargs)
        if entry.hot is not None:
            self.__dict__["_hot"] = entry.hot
        return entry.call(args, kwargs, flat)

    def _entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, list[Any]]:
        """What runs a call, made where there is none, and the call's arguments in a row."""
        flat, tree = tree_flatten((args, kwargs))
        key = call_key(flat, tree)
        entry = self._find(key)
        if entry is None:
            with self._lock:
                entry = self._find(key) or self._make(args, kwargs, flat)
                self._entries.setdefault(key, []).insert(0, entry)
        return entry, flat

    def _find(self, key: Any) -> Entry | None:
        return next((e for e in self._entries.get(key, ()) if e.state.valid()), None)

    def _make(self, args: tuple[Any, ...], kwargs: dict[str, Any], flat: list[Any]) -> Entry:
        fn = self.__wrapped__
        try:
            with torch_silent():
                captured = capture(fn, args, kwargs)
        except CaptureError as error:
            return self._dynamo_entry(error)
        if not (torch.is_grad_enabled() and _wants_gradients(captured, flat)):
            return direct_entry(fn, captured, self._build(captured), flat)
        loose = [p for p in captured.placeholders if p.kind == "constant" and _differentiable(p)]
        if loose:
            told = "gradients of a tensor that belongs to no module"
            return self._dynamo_entry(CaptureError(told))
        return self._gradient_entry(captured)

    def _gradient_entry(self, captured: Captured) -> Entry:
        step = Differentiable(self.__wrapped__, self._build, captured.out_tree)

        def call(args: tuple[Any, ...], kwargs: dict[str, Any], flat: list[Any]) -> Any:
            try:
                return step(*args, **kwargs)
            except WeftError:
                raise
            except Exception as error:
                if step.started:
                    raise
                told = f"AOTAutograd: {error}".split("\n")[0]
                through = self._dynamo_entry(CaptureError(told))
                entry.call, entry.state = through.call, through.state
                return entry.call(args, kwargs, flat)

        entry = Entry(call, self._whole_state())
        return entry

    def _dynamo_entry(self, cause: CaptureError) -> Entry:
        self.reasons.append(cause.message + (f" at {cause.where}" if cause.where else ""))
        if self._through_dynamo is None:
            backend = graph_backend(self._build)
            self.__dict__["_through_dynamo"] = torch.compile(
                self.__wrapped__, backend=backend, dynamic=False, fullgraph=self._one_graph
            )

        def call(args: tuple[Any, ...], kwargs: dict[str, Any], flat: list[Any]) -> Any:
            try:
                with torch_silent(), dynamo.config.patch(suppress_errors=not self._one_graph):
                    return self._through_dynamo(*args, **kwargs)
            except TorchDynamoException:
                raise cause from None

        return Entry(call, State.of([], []))

    def _whole_state(self) -> State:
        """Every parameter and buffer: AOTAutograd takes them all as inputs."""
        modules = modules_of(self.__wrapped__)
        homes = homes_of(modules)
        return State.of([*modules.values()], [(home, key) for _, _, home, key in homes.values()])

    def _build(self, captured: Captured) -> Runner:
        runner = self._raw_build(captured)
        self.programs.append(runner)
        return runner


class CompiledModule(Compiled, torch.nn.Module):
    """A compiled module that is the module in every other respect: parameters, state, modes."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["__wrapped__"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__wrapped__, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return f"compiled {self.__wrapped__!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        return type(self)(copy.deepcopy(self.__wrapped__, memo), self._raw_build, self._one_graph)

    def __reduce__(self) -> Any:
        raise WeftError("a compiled module is not saved; save its state_dict, or the module")


@contextmanager
def torch_silent() -> Generator[None, None, None]:
    """Without torch's log lines about what it could not follow: `reasons` tell that."""
    loggers = [logging.getLogger(f"torch.{name}") for name in ("_dynamo", "_subclasses")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _delegated(name: str) -> Callable[..., Any]:
    def method(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
        module = self.__wrapped__
        out = getattr(module, name)(*args, **kwargs)
        return self if out is module else out

    return method


for _name, _member in vars(torch.nn.Module).items():
    if callable(_member) and not _name.startswith("__"):
        type.__setattr__(CompiledModule, _name, _delegated(_name))


def _differentiable(p: Any) -> bool:
    return p.tensor is not None and p.tensor.requires_grad


def _wants_gradients(captured: Captured, flat: list[Any]) -> bool:
    inputs = (t.requires_grad for t in flat if isinstance(t, torch.Tensor))
    return any(inputs) or any(_differentiable(p) for p in captured.placeholders)
