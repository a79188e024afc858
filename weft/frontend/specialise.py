"""An FX graph as a callable: compiled for what it is called with, in eager where it must be.

program = GraphProgram(fx_graph, session)
program.prepare(examples)             # compiled now
(y,) = program(x, weight)             # as fx_graph(x, weight): values, aliasing, writes, gradients

What cannot be compiled is cut out, as small as it can be, and runs in eager; the rest is compiled.
The session keeps the reasons. With fallback="error" the first of them is raised instead.
"""

# This file reaches into torch: its modes and transforms have no public names for all of it.
# pyright: reportPrivateUsage=false

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.exc import RestartAnalysis
from torch._guards import TracingContext
from torch._ops import HigherOrderOperator
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from weft.core.errors import ENVIRONMENT, CaptureError, UnsupportedOpError, WeftError, sentence
from weft.core.node import Node
from weft.frontend.assumptions import ANY, CONSTANTS, Assumptions, Check
from weft.frontend.capture import Name, Uncaptured, capture
from weft.frontend.composites import in_transform
from weft.frontend.derivatives import differentiates, passes_torchs
from weft.frontend.extents import Source, is_unbacked, narrow, shape_env_of, with_free_sizes
from weft.frontend.graph import Captured, Runner, entry
from weft.frontend.lines import innermost_line
from weft.frontend.parts import (
    EAGER,
    FX,
    VALUE,
    attributes,
    is_of_a_tuple,
    returns_a_tuple,
    sizing,
    split,
    stays_whole,
    trains,
)
from weft.frontend.stored import Store, packed, unpacked
from weft.frontend.subclasses import picked, plain

log = logging.getLogger(__name__)

Build = Callable[[Captured], Runner]
Through = Callable[[FX, "Session"], Any]  # a graph as Python that Dynamo compiles: its .call

SPECIALISATIONS = 64  # of one graph, after which the one used least recently goes
ROUNDS = 8  # sizes that are given up one after another
VALUES = 8  # numbers that a graph is specialised to, after which it runs in eager


PREPARING: ContextVar[bool] = ContextVar("preparing", default=False)


class Prepared(BaseException):
    """While PREPARING is set, a graph is compiled but not run: raised in place of a result."""


@dataclass
class Session:
    """What the graphs of one compiled callable share: the back end, and what became of them."""

    build: Build
    strict: bool = False  # fallback="error": what cannot be compiled is an error
    debug: bool = False  # a defect of weft's own is raised as well
    title: str = "graph"
    dynamic: bool | None = False  # whether one program is for all sizes that Dynamo leaves free
    promises: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of weft.compile's sizes
    frames: Through | None = None
    fused_random: bool = True  # numbers by coordinates, from one seed a call; else torch's own
    store: Store | None = None  # where captured programs are kept for other processes
    programs: list[Runner] = field(default_factory=list[Runner])
    reasons: list[str] = field(default_factory=list[str])

    def compiled(self, captured: Captured) -> Runner:
        run = self.build(captured)
        self.programs.append(run)
        return run

    def specialise(self, error: Exception, became: str) -> None:
        """Say what a size `became`, or why something is compiled for each size by itself."""
        own = self.debug and not isinstance(error, WeftError)
        if own or type(error) in ENVIRONMENT or (self.strict and self.promises and not became):
            raise error
        what = f"a size of %s {became}" if became else "%s is compiled for each size by itself"
        level = logging.WARNING if (self.dynamic or self.promises) and not became else logging.INFO
        log.log(level, f"{what}: %s", self.title, sentence(error))

    def refuse(self, error: Exception) -> None:
        """Note why something runs in eager; raises where that is not wanted."""
        expected = isinstance(error, (CaptureError, UnsupportedOpError))
        if self.strict or (self.debug and not expected) or type(error) in ENVIRONMENT:
            raise error
        where = error.where if isinstance(error, WeftError) else None
        reason = sentence(error) + (f" at {where}" if where else "")
        if reason not in self.reasons:
            self.reasons.append(reason)
            level = logging.INFO if expected else logging.WARNING
            log.log(level, "%s runs in eager: %s", self.title, reason)


@dataclass
class Special:
    """A specialisation: what it assumes, its call, and (once called) the fast check of that."""

    assumed: Assumptions
    call: Callable[..., Any]
    numbers: Mapping[int, Any]
    writes: bool
    captured: Captured | None = None  # where it is one program
    check: Check | None = None
    apart: Check | None = None  # what of the check Dynamo's guards do not look at, where it writes

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Whether the inputs whose values were read still have those."""
        whole = plain(inputs) if self.numbers else inputs
        return all(repr(whole[i].item()) == repr(value) for i, value in self.numbers.items())

    def arm(self, inputs: Sequence[Any]) -> None:
        """Make the fast check, from inputs that satisfy the record."""
        check, fits = self.assumed.check(inputs, self.writes), self.fits
        self.apart = self.assumed.apart(inputs) if self.writes else None
        self.check = (lambda *given: check(*given) and fits(given)) if self.numbers else check


@dataclass(eq=False, repr=False)
class GraphProgram:
    """One FX graph, and its specialisations by what each assumes.

    `source` is the graph, or makes it when it is asked for: its specialisations need it no more.
    `differentiate` compiles the graph for inputs that want gradients; None: none of them do.
    `settled` has what the last trace called sizes, `parts` calls by what of them stays in eager.
    """

    source: FX | Callable[[], FX]
    session: Session
    names: Sequence[Name] | None = None
    differentiate: Callable[[FX, Sequence[Any]], Callable[..., Any]] | None = None
    specials: OrderedDict[Assumptions, list[Special]] = field(default_factory=OrderedDict)
    settled: Mapping[Node, Source] = field(default_factory=dict[Node, Source])
    free: bool = False  # whether it is called with other sizes
    general: Special | None = None  # for any size
    recent: Special | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    whole: bool = False  # whether the frame that it is of made no other graph
    sources: Sequence[Any] = ()  # where Dynamo finds its inputs
    parts: dict[torch.fx.Node | None, Callable[..., Any]] = field(default_factory=dict)
    cut: Callable[..., Any] | None = None  # the parts, where sizes depend on values

    @cached_property
    def graph(self) -> FX:
        return self.source if isinstance(self.source, FX) else self.source()

    def __call__(self, *inputs: Any) -> Any:
        if PREPARING.get():
            raise Prepared
        if in_transform() or forward_ad._current_level >= 0:
            return self.graph.forward(*inputs)  # tangents and batches follow eager's operators
        if self.cut is not None:
            return self.cut(*inputs)
        special = self.recent
        if special is None or special.check is None or not special.check(*inputs):
            special = self.recent = self._armed(inputs)
        return special.call(*inputs)

    def prepare(self, examples: Sequence[Any]) -> None:
        """Compile for inputs like these (real or fake): for any size where theirs are no numbers.

        What cannot be compiled for any size is compiled for each that it is called with.
        """
        examples = with_free_sizes(self.graph, examples)
        at = next((n for n in self.graph.graph.nodes if is_unbacked(n.meta.get(VALUE))), None)
        if at is not None:
            told, self.free = f"the shape of what {at.name} gives depends on values", True
            self.session.refuse(CaptureError(told, innermost_line(at.stack_trace)))
            self.cut = self._in_parts(at)
            return
        if shape_env_of(examples) is None:
            if all(isinstance(x, (torch.Tensor, *CONSTANTS)) for x in examples):
                self._find(examples)
            return
        self.free = True
        for _ in range(0 if self.session.dynamic is False else ROUNDS):
            try:
                self.general = self._compiled(self._assumed(examples), examples)
            except RestartAnalysis:
                raise  # Dynamo takes a float for a constant, and begins again
            except Exception as error:
                became = narrow(error, examples, self.settled)
                self.session.specialise(error, became)
                if became:
                    continue
            break

    @property
    def direct(self) -> Callable[..., Any]:
        """The call for a caller who has made sure of each input: where it writes to some, it
        still makes sure that none overlap."""
        found = [s for row in self.specials.values() for s in row]
        found += [self.general] if self.general is not None else []
        alone = len(found) == 1 and not found[0].numbers
        if not alone or (self.free and found[0] is not self.general):
            return self
        call, apart = found[0].call, found[0].apart
        if not found[0].writes:
            return call
        if apart is None:
            return self
        writing = getattr(call, "writing", None)
        made = writing(apart, self) if writing is not None else None
        return made or (lambda *inputs: call(*inputs) if apart(*inputs) else self(*inputs))

    def _armed(self, inputs: Sequence[Any]) -> Special:
        """The specialisation whose fast check these inputs pass, the one used last first.

        Where there is none as yet, it is found, or made, and gets its fast check.
        """
        with self.lock:
            general = self.general
            if general is not None:
                if general.check is None and general.assumed.fit(inputs):
                    general.arm(inputs)
                if general.check is not None and general.check(*inputs):
                    return general
            for assumed, row in reversed(self.specials.items()):
                for special in row:
                    if special.check is not None and special.check(*inputs):
                        self.specials.move_to_end(assumed)
                        return special
        special = self._find(inputs)
        special.arm(inputs)
        return special

    def _find(self, inputs: Sequence[Any]) -> Special:
        """The specialisation for these inputs, made where there is none."""
        assumed = self._assumed(inputs)
        with self.lock:
            found = self._of(assumed, inputs)
        if found is not None:
            return found
        # AOTAutograd compiles for one thread at a time. Dynamo's lock, which its backends are
        # called under, comes first: in another order two threads could wait for each other.
        with compile_lock, self.lock:
            found = self._of(assumed, inputs)
            if found is None:
                row = self.specials[assumed]
                found = self._make(assumed, inputs, len(row))
                row.append(found)
                while len(self.specials) > SPECIALISATIONS:
                    self.specials.popitem(last=False)
            return found

    def _assumed(self, inputs: Sequence[Any]) -> Assumptions:
        assumed = Assumptions.of(inputs)
        if self.differentiate is None:  # AOTAutograd calls it in whichever mode it likes
            assumed = replace(assumed, modes=(ANY, *assumed.modes[1:]))
        return assumed

    def _of(self, assumed: Assumptions, inputs: Sequence[Any]) -> Special | None:
        row = self.specials.setdefault(assumed, [])
        self.specials.move_to_end(assumed)
        return next((s for s in row if s.fits(inputs)), None)

    def _make(self, assumed: Assumptions, inputs: Sequence[Any], known: int) -> Special:
        try:
            if known >= VALUES:
                raise CaptureError(f"a number it reads has had {known} values")
            return self._compiled(assumed, inputs)
        except Exception as error:
            if isinstance(error, RestartAnalysis) and TracingContext.try_get() is not None:
                raise  # Dynamo begins again, with a float as a constant
            self.session.refuse(error)
            at = error.node if isinstance(error, Uncaptured) else None
            return Special(assumed, self._in_parts(at), {}, True)

    def _compiled(self, assumed: Assumptions, inputs: Sequence[Any]) -> Special:
        if (at := sizing(self.graph)) is not None:
            told = f"{at.name} gives a tensor of its state a size: call it in eager once"
            raise Uncaptured(told, innermost_line(at.stack_trace), at)
        wanted = self._wants_gradients(inputs)
        if not (wanted or assumed.wrappers) or _is_apart(assumed) or self.differentiate is None:
            return self._traced(assumed, inputs)
        try:
            if not wanted or trains(self.graph):
                return self._traced(assumed, inputs, trained=wanted)
        except CaptureError as error:  # AOTAutograd may take apart what stands in the way
            log.info("%s goes through AOTAutograd: %s", self.session.title, sentence(error))
        return Special(assumed, self.differentiate(self.graph, inputs), {}, True)

    def _traced(
        self, assumed: Assumptions, inputs: Sequence[Any], trained: bool = False
    ) -> Special:
        """The graph as one program; with gradients inside where it is `trained`."""
        with _disable_current_modes():  # AOTAutograd compiles while its own fake mode is on
            captured = self._captured(inputs, trained)
            if _is_apart(assumed) and (captured.mutations or self._wants_gradients(inputs)):
                raise CaptureError("tensors of one storage at a distance that is a size")
            self.settled = captured.sizes
            apart = picked(inputs) if assumed.wrappers else None
            return self.special(assumed, captured, len(assumed.inputs), apart)

    def special(self, assumed: Assumptions, captured: Captured, arity: int, apart: Any) -> Special:
        """A captured program, built."""
        call = entry(captured, self.session.compiled(captured), arity, self._in_eager, apart)
        return Special(assumed, call, captured.numbers, bool(captured.mutations), captured)

    def _captured(self, inputs: Sequence[Any], trained: bool) -> Captured:
        """The graph, traced: by an earlier process where the store has it."""
        session, store = self.session, self.session.store
        how = session.title, session.fused_random, trained, session.strict
        if store is None or self.differentiate is None:  # AOTAutograd's are kept with its own
            return capture(self.graph, inputs, self.names, *how)
        key = store.key(self.graph, inputs, self.names, "graph", *how[1:])
        found = store.load(key)
        if found is not None:
            return unpacked(found, session.title)
        captured = capture(self.graph, inputs, self.names, *how)
        if key is not None and (kept := packed(captured)):
            store.save(key, kept)
        return captured

    def _wants_gradients(self, inputs: Sequence[Any]) -> bool:
        """Whether AOTAutograd has to see the graph."""
        if self.differentiate is None:
            return False
        if differentiates(self.graph):
            if torch.is_grad_enabled() and passes_torchs(self.graph, inputs):
                told = "torch's autograd is to follow a program in which weft takes gradients"
                raise CaptureError(
                    f"{told}: detach what it gives, or call it under torch.no_grad()"
                )
            return False
        given = (*inputs, *attributes(self.graph))
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        wanted = any(t.requires_grad for t in tensors)
        switches = (n for n in self.graph.graph.nodes if n.target is torch._C._set_grad_enabled)
        if wanted and not torch.is_grad_enabled() and any(n.args[0] for n in switches):
            raise CaptureError("gradients are switched on inside the graph")
        return wanted and torch.is_grad_enabled()

    def _in_eager(self, error: Exception) -> Callable[..., Any]:
        self.session.refuse(error)
        return self.graph.forward

    def _in_parts(self, at: torch.fx.Node | None) -> Callable[..., Any]:
        """The graph in eager around compiled parts: without the node `at`, or in two halves.

        Of a branch or a loop, eager runs what stands around its bodies. Where sizes are free,
        parts are programs of Dynamo's, which are for any size as those of Python are.
        """
        if at in self.parts:
            return self.parts[at]
        steps = [n for n in self.graph.graph.nodes if n.op.startswith("call_")]
        steps = [n for n in steps if not is_of_a_tuple(n)]  # which is where the tuple is made
        if at is not None and isinstance(at.target, HigherOrderOperator):
            self._compile_parts(self.graph)
        if len(steps) < 2 or stays_whole(self.graph, steps):
            return self.graph.forward
        parts = split(self.graph, steps, at)
        self._compile_parts(parts, self.session.frames if self.free else None)
        self.parts[at] = parts.forward
        return parts.forward

    def _compile_parts(self, graph: FX, through: Through | None = None) -> None:
        """Have the graphs that this one calls compiled, or what `through` makes of them."""
        for name, part in list(graph.named_children()):
            if isinstance(part, FX) and name != EAGER and "forward" not in vars(part):
                if through is not None:
                    part.frames = through(FX(part, part.graph), self.session)
                    part.forward = part.frames.call
                    continue
                alone = returns_a_tuple(part)
                program = GraphProgram(FX(part, part.graph), self.session, None, self.differentiate)
                part.forward = _first(program) if alone else program


def _is_apart(assumed: Assumptions) -> bool:
    """Whether tensors lie in one storage, who knows how far from each other."""
    return any(ANY in place for place in assumed.sharing)


def _first(program: GraphProgram) -> Callable[..., Any]:
    return lambda *inputs: program(*inputs)[0]
