"""Python programs through Dynamo: it turns them into FX graphs, and guards all that it saw.

frames = Frames(fn, session)
y = frames.call(x)                    # compiled by Dynamo at the first call
(hot,) = frames.learn()               # if hot.fits(frame): hot.run(x), without Dynamo

Where a whole call is one graph, the code that Dynamo made of it runs by itself, behind Dynamo's
own guards, and calls our program without what torch.compile adds (some 12 us).
"""

# This file reaches into torch: Dynamo has no public names for its guards and its code.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import builtins
import dis
import inspect
import itertools
import logging
import re
import traceback
import types
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any
from weakref import WeakSet, finalize, ref

import torch
import torch._dynamo as dynamo
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list, reset_code
from torch._dynamo.eval_frame import innermost_fn
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy
from torch._dynamo.utils import graph_break_reasons
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from weft.core.collector import uncollected
from weft.core.errors import CaptureError, WeftError
from weft.frontend.autograd import graph_backend
from weft.frontend.capture import Name
from weft.frontend.composites import switched
from weft.frontend.extents import is_symbolic
from weft.frontend.first_steps import FirstSteps
from weft.frontend.hot import NO_PLAN, Direct, Hot, direct, mostly
from weft.frontend.lines import innermost_line
from weft.frontend.loads import Check, handed_on, positions, sources, without_loads
from weft.frontend.parts import FX
from weft.frontend.promises import MARKED, hold
from weft.frontend.recurrent import recurrent
from weft.frontend.specialise import GraphProgram, Session
from weft.frontend.tensor_guards import Tensors
from weft.frontend.whole_steps import begins, whole_steps

# What Dynamo assumes by default without a guard: that hooks are neither added nor removed, that
# parameters are never the same tensor, that no function gets other defaults. Here nothing is.
SOUND = {
    "skip_nnmodule_hook_guards": False,
    "skip_no_tensor_aliasing_guards_on_parameters": False,
    "assume_dunder_attributes_remain_unchanged": False,
}
WARN_AT = 8  # compilations of one frame
# Of weft.compile's own: guards of modules that compare versions of dicts; recurrent layers are
# traced; no limit of eight.
OWN = {
    "specialize_float": False,
    "use_recursive_dict_tags_for_guards": True,
    "record_runtime_overhead": False,
    "allow_rnn": True,
    "recompile_limit": 64,
    "accumulated_recompile_limit": 4096,
    "side_effect_replay_policy": "silent",  # it formats stacks for a log
}


# Dynamo's code reads sizes by functions of that module, which take a microsecond each.
SIZES = {"call_size": torch.Tensor.size, "call_stride": torch.Tensor.stride}

EAGER = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)  # and so what the frame calls

log = logging.getLogger(__name__)
_numbers = itertools.count()


def settings(**values: Any) -> dict[str, Any]:
    """Those of the settings that this torch has."""
    return {name: value for name, value in values.items() if hasattr(dynamo.config, name)}


def guard_everything() -> None:
    """Switch on, for every backend, the guards that Dynamo leaves out by default."""
    for name, value in settings(**SOUND).items():
        setattr(dynamo.config, name, value)


class _Keys:
    """The keys of dicts by number, for one call: Dynamo's code counts up to each of them."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, ...]] = {}

    def at(self, d: dict[Any, Any], number: int) -> Any:
        keys = self.known.get(id(d))
        if keys is None:
            keys = self.known[id(d)] = tuple(dict.keys(d))
        return keys[number]

    def within(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, after which the keys are forgotten: dicts may change."""

        def forgetful(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            finally:
                self.known.clear()

        return forgetful


def callable_of_many(call: Callable[..., Any], code: types.CodeType) -> Callable[..., Any]:
    """The call, as code in which a builtin may have more than 255 arguments can call it.

    CPython 3.11 jumps astray behind such a call once it has specialised PRECALL: its own compiler
    writes none, but Dynamo does. A call of a function of Python's is not specialised like that.
    """
    most = max((i.arg or 0 for i in dis.get_instructions(code) if i.opname == "PRECALL"), default=0)
    return call if most < 256 else lambda *inputs: call(*inputs)


class _InEager(BaseException):
    """A call is not Dynamo's: nothing of it has run."""


def _or_eager(call: Callable[..., Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        with suppress(_InEager):
            return call(*args, **kwargs)
        return fn(*args, **kwargs)

    return called


class Frames:
    """A function whose frames Dynamo compiles; its cache is its own, whatever else shares code."""

    def __init__(self, fn: Callable[..., Any], session: Session) -> None:
        self.fn, self.session = fn, session
        self.backend = graph_backend(session)
        self.entry = _entry(fn)
        # else Dynamo would keep what it compiled for good
        finalize(self, reset_code, self.entry.__code__).atexit = False
        self.argument = _arguments(fn)
        self.first = FirstSteps(session.store, fn)
        self.known: WeakSet[Any] = WeakSet()
        self.converted = 0  # frames that Dynamo was asked to compile
        here = ref(self)  # Dynamo keeps every backend for good, and must not keep all of this

        def backend(graph: FX, examples: Sequence[Any]) -> Any:
            frames = here()
            assert frames is not None, "its frames are gone with it"
            return frames.compiled_by(graph, examples)

        options: Any = {"nopython": session.strict, "dynamic": session.dynamic}
        context: Any = dynamo.optimize(backend, **options)
        if hasattr(context, "callback"):  # not so where TORCHDYNAMO_DISABLE is set
            context.callback = _Converter(context.callback, self)
        self.call: Callable[..., Any] = context(self.entry)
        if session.strict:
            self.call = _or_eager(self.call, fn)

    def compiled_by(self, graph: FX, examples: Sequence[Any]) -> Any:
        """The backend, with the names that inputs have in Python."""
        reason = getattr(graph, "compile_subgraph_reason", None)
        names = names_of(graph, self.argument)
        held, where = hold(graph, examples, names), sources(graph)
        program = self.backend(graph, examples, names)
        for what in (what for size, what in held if not is_symbolic(size)):
            if self.session.strict:
                raise WeftError(f"{what} is promised, but its number decides what is computed")
            log.warning("%s is promised, but compiled for each size", what)
        if isinstance(program, GraphProgram):
            program.whole = reason is not None and not reason.graph_break
            program.sources = where
        return program

    def in_eager(self) -> ConvertFrameReturn:
        """Have a frame run as it is. Dynamo takes that for an error where all is to be compiled."""
        if self.session.strict:
            raise _InEager
        return ConvertFrameReturn(EAGER, apply_to_code=False)

    def learn(self) -> list[Hot]:
        """The calls compiled since the last time that need no Dynamo."""
        found: list[Hot] = []
        for entry in _debug_get_cache_entry_list(self.entry.__code__):
            guards = entry.guard_manager
            if guards in self.known or not hasattr(guards, "cache_entry"):
                continue
            self.known.add(guards)
            made = self._alone(entry.code, guards.root.check, getattr(guards, "tensors", None))
            if made is not None:
                check, run, plan = made
                sized = not SIZES.keys().isdisjoint(entry.code.co_names)
                found.append(Hot(guards, check, mostly(check) if sized else check, run, plan))
        return found

    def warn(self, frame: Any) -> None:
        """Say what changed where a frame is compiled again; again and again, as a warning."""
        entries = _debug_get_cache_entry_list(frame.f_code)
        count = len(entries)
        if not entries:
            return
        failed = entries[0].guard_manager.check_verbose(frame.f_locals).verbose_code_parts
        what = failed[0].split("  #")[0].strip() if failed else "a guard failed"
        name = f"{frame.f_code.co_name} of {self.session.title}"
        level = logging.WARNING if count == WARN_AT else logging.INFO
        log.log(level, "%s is compiled again (%d): %s", name, count + 1, what)
        if count == OWN["recompile_limit"]:
            reason = f"{name} was compiled {count} times, and is not compiled again: {what}"
            self.session.refuse(CaptureError(reason))

    def _alone(
        self, code: types.CodeType, check: Check, tensors: Tensors | None
    ) -> tuple[Check, Callable[..., Any], Direct] | None:
        """The check, the code as a function that calls our programs directly, and as a plan.

        None where it needs Dynamo. Where the check finds all that the program reads, the code does
        not load it again.
        """
        scope = self.entry.__globals__
        compiled = [name for name in code.co_names if name.startswith("__compiled_fn")]
        programs: dict[str, Any] = {name: innermost_fn(scope[name]) for name in compiled}
        whole = all(isinstance(p, GraphProgram) and p.whole for p in programs.values())
        if not compiled or not whole or any(n.startswith("__resume") for n in code.co_names):
            return None
        if tensors is not None and len(programs) == 1:
            ((name, program),) = programs.items()
            places = positions(program.sources, tensors)
            short = without_loads(code, name, len(places)) if places else None
            if short is not None:
                check, call = handed_on(check, tensors, places, program.direct)
                return check, self._function(short, {**scope, name: call}), NO_PLAN
        keys = _Keys()
        utils = types.SimpleNamespace(**vars(dynamo.utils))
        vars(utils).update(SIZES, dict_keys_getitem=keys.at)
        found = {name: callable_of_many(program.direct, code) for name, program in programs.items()}
        scope = {**scope, **found}
        scope |= {name: utils for name in code.co_names if scope.get(name) is dynamo.utils}
        run = self._function(code, scope)
        run = keys.within(run) if "dict_keys_getitem" in code.co_names else run
        plan = direct(code, *found.popitem(), scope) if len(found) == 1 else NO_PLAN
        return check, run, plan

    def _function(self, code: types.CodeType, scope: dict[str, Any]) -> Callable[..., Any]:
        return types.FunctionType(code, scope, code.co_name, None, self.entry.__closure__)


class _Converter:
    """Dynamo's own conversion of a frame, under our settings; a frame it fails on runs in eager."""

    def __init__(self, convert: Any, frames: Frames) -> None:
        self.convert, self.frames = convert, ref(frames)
        self._torchdynamo_orig_backend = convert  # by which Dynamo tells backends apart

    def __call__(self, frame: Any, entry: Any, *more: Any, **named: Any) -> Any:
        frames = self.frames()
        assert frames is not None
        frames.converted += 1
        frames.warn(frame)
        if frame.f_code.co_name.startswith("torch_dynamo_resume_in"):
            MARKED.set({})  # its other inputs have sizes that are numbers still
        is_first = frames.converted == 1 and frame.f_code is frames.entry.__code__
        if is_first and (opt := frames.first.ends(frame)) is not None and begins(opt):
            return frames.in_eager()
        refuse, known = frames.session.refuse, len(graph_break_reasons)
        ours = dynamo.config.patch(settings(**SOUND, **OWN))
        with ours, uncollected(), recurrent(False), silent("_dynamo"), silent("_subclasses"):
            try:
                with whole_steps() as whole:
                    try:
                        return self.convert(frame, entry, *more, **named)
                    except Exception as error:
                        if isinstance(error, WeftError) or not whole.followed:
                            raise
                        if whole.later is not None:
                            if is_first:
                                frames.first.note(frame, whole.later)
                            return frames.in_eager()
                return self.convert(frame, entry, *more, **named)
            except WeftError:
                raise
            except Exception as error:
                own = isinstance(error, BackendCompilerFailed)  # a defect, in Dynamo's words
                refuse(error.inner_exception if own else plain(error))
                return ConvertFrameReturn()
            finally:  # why Dynamo ended graphs early
                for reason in graph_break_reasons[known:]:
                    first = reason.reason.strip().split("\n")[0]
                    place = _place(reason.user_stack)
                    # Dynamo gives one break several reasons, in its own terms after the first
                    if not (place and any(place in known for known in frames.session.reasons)):
                        refuse(CaptureError(first, place))


def silent(part: str) -> AbstractContextManager[None]:
    """Without Dynamo's log lines about what it could not follow: `reasons` say that."""
    logger = logging.getLogger(f"torch.{part}")
    return switched(lambda: logger.level, logger.setLevel, logging.CRITICAL)


def plain(error: Exception) -> CaptureError:
    """Dynamo's error as one sentence and a place: of a failed operator, what that says."""
    message = str(getattr(error, "msg", error)).strip()
    if isinstance(error, GuardOnDataDependentSymNode) or "data-dependent" in message:
        message = "what to do depends on a number that a tensor holds"
    failed = re.search(r"got (\w+)\((['\"])(.*?)\2\)$", message, re.MULTILINE)
    first = f"{failed[1]}: {failed[3]}" if failed else message.split("\n")[0]
    return CaptureError(first, _place(getattr(error, "real_stack", None) or ()))


def _place(stack: Iterable[traceback.FrameSummary]) -> str | None:
    return innermost_line("".join(f'File "{f.filename}", line {f.lineno}\n' for f in stack))


def _entry(fn: Callable[..., Any]) -> types.FunctionType:
    """A function that calls `fn`, of code and globals of its own: Dynamo caches by code.

    Which sizes have changed it keeps by file and line: of that every function has its own as well.
    """
    scope: dict[str, Any] = {"__builtins__": builtins, "__name__": "weft.entry"}
    text = "def bind(fn):\n    def call(*args, **kwargs):\n        return fn(*args, **kwargs)\n"
    exec(compile(f"{text}    return call", f"<weft {next(_numbers)}>", "exec"), scope)
    return scope.pop("bind")(fn)


# Names


def _arguments(fn: Callable[..., Any]) -> Callable[[int], str]:
    """What positional argument number i is called: of f(x, *more) x, more.0, more.1, ..."""
    try:
        given = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters
    except (TypeError, ValueError):
        return "arg{}".format
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in given.values() if p.kind in positional]
    rest = next((p.name for p in given.values() if p.kind == inspect.Parameter.VAR_POSITIONAL), "")
    return lambda i: names[i] if i < len(names) else f"{rest}.{i - len(names)}"


def names_of(graph: FX, argument: Callable[[int], str] | None = None) -> list[Name]:
    """What the inputs of Dynamo's graph are called, after where Dynamo found them in Python.

    L['fn']._modules['norm']._parameters['weight'] is norm.weight, and a parameter. `argument`
    names the items of L['args'], where the frame is our own call(*args, **kwargs).
    """
    return [_name(p, argument) for p in graph.graph.find_nodes(op="placeholder")]


def _name(p: torch.fx.Node, argument: Callable[[int], str] | None) -> Name:
    source = getattr(p.meta.get("grapharg"), "source", None)
    if source is None:
        return Name(p.name)
    text: str = source.name if isinstance(source.name, str) else source.name()
    words = ["".join(w) for w in re.findall(r"\['(\w+)'\]|\.(\w+)|\[(\d+)\]", text)]
    fixed = "_parameters" in words or "_buffers" in words
    first, *rest = words or [""]
    if first == "args" and argument and rest and rest[0].isdecimal():
        words = [argument(int(rest[0])), *rest[1:]]
    elif first in ("kwargs", "fn", "self") and rest:
        words = rest
    return Name(".".join(w for w in words if w not in HOUSEKEEPING) or p.name, fixed)


HOUSEKEEPING = """_modules _parameters _buffers __closure__ cell_contents __dict__
__func__ __self__ __defaults__ __kwdefaults__ forward""".split()
