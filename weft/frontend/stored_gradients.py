"""Forward and backward of a graph, kept on disk: in a later process AOTAutograd does not run.

made = Halves(store, key)
with made.noted():                    # around AOTAutograd: what it knows of the call
    call = through(graph, inputs)
made.add(forward); made.add(backward)     # GraphPrograms, when compiled: then both are saved
call = restored(found, session)       # what AOTAutograd gave; `found` is what store.load(key) gave

The call is put together again by torch's own code for hits of its cache (aot_autograd_result).
"""

# This file reaches into torch: AOTAutograd has no public names for its stages.
# pyright: reportPrivateUsage=false

import pickle
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from inspect import signature
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from functorch.compile import make_boxed_func
from torch._dynamo import disable
from torch._functorch import config
from torch._functorch._aot_autograd import graph_compile
from torch._functorch._aot_autograd.aot_autograd_result import (
    BundledAOTAutogradResult,
    BundledCompiledBackward,
)

from weft.frontend.parts import FX
from weft.frontend.specialise import GraphProgram, Session
from weft.frontend.stored import Store, packed, unpacked

STAGE = "_aot_stage2c_make_autograd_function"  # which has all that AOTAutograd knows of a call
NOTED = "fw_metadata", "wrappers", "_indices_of_inps_to_detach", "num_symints_saved_for_bw"
UNKNOWN = """compiled_fw compiled_bw aot_joint_graph_str aot_forward_graph_str
aot_backward_graph_str min_cut_info_str runtime_metadata dispatch_wrappers maybe_subclass_meta
num_fw_outs_saved_for_bw indices_of_inps_to_detach sanitized_aot_config guards_expr
serialized_bw_module""".split()


class Halves:
    """The programs of a forward and a backward, until both are there."""

    def __init__(self, store: Store, key: str) -> None:
        self.store, self.key = store, key
        self.known: bytes | None = None  # what AOTAutograd knows of the call
        self.programs: list[Any] = []

    @contextmanager
    def noted(self) -> Generator[None]:
        if not _is_known() or config.debug_assert:  # another torch, or one that checks
            yield
            return
        make = getattr(graph_compile, STAGE)
        names = signature(make)

        def stage(*given: Any) -> Any:
            told = names.bind(*given).arguments
            if told["maybe_subclass_meta"] is None:
                how = replace(
                    told["aot_config"].to_cacheable(), aot_autograd_arg_pos_to_source=None
                )
                self.note(how, *(told[name] for name in NOTED))
            return make(*given)

        with patch.object(graph_compile, STAGE, stage):
            yield

    def note(self, *known: Any) -> None:
        with suppress(Exception):  # torch's records hold whatever torch likes
            self.known = pickle.dumps(known)
        self._save()

    def add(self, program: GraphProgram) -> None:
        """One of both, the forward first; saves both where each is one program."""
        self.programs.append(_packed(program))
        self._save()

    def _save(self) -> None:
        if self.known is not None and len(self.programs) == 2 and all(self.programs):
            self.store.save(self.key, (self.known, self.programs))


def _is_known() -> bool:
    """Whether this torch has the stage and the record, of the parts that are used here."""
    stage, record = getattr(graph_compile, STAGE, None), BundledAOTAutogradResult
    if stage is None or not hasattr(record, "_apply_runtime_wrappers"):
        return False
    told = {"aot_config", "maybe_subclass_meta", *NOTED} <= {*signature(stage).parameters}
    return told and {*_record()} == {f.name for f in fields(record)}


def _record(**known: Any) -> dict[str, Any]:
    """The fields of torch's record of a call, of which what is not `known` says nothing."""
    unknown = dict.fromkeys(UNKNOWN)
    return {**unknown, "forward_time_taken_ns": 0, "backward_time_taken_ns": 0, **known}


def _packed(program: GraphProgram) -> tuple[Any, ...] | None:
    """The program's only specialisation, and its graph, for calls that it does not fit."""
    found = [s for row in program.specials.values() for s in row]
    graph = program.graph
    held = any(True for _ in graph.children()) or graph.graph.find_nodes(op="get_attr")
    if len(found) != 1 or found[0].captured is None or held:
        return None
    kept = packed(found[0].captured)
    bare: Any = FX(torch.nn.Module(), graph.graph)
    return kept and (found[0].assumed, kept, bare.__reduce__())


def restored(found: tuple[Any, ...], session: Session) -> Callable[..., Any]:
    """The call that AOTAutograd gave, of programs that the session builds."""
    known, halves = found
    how, metadata, wrappers, detached, symbols = pickle.loads(known)
    metadata.bw_donated_idxs = []  # weft writes to no tensor that forward kept
    forward, backward = (_program(half, session) for half in halves)
    told = _record(
        compiled_bw=BundledCompiledBackward(None, [], symbols),  # type: ignore[arg-type]
        runtime_metadata=metadata,
        dispatch_wrappers=wrappers,
        indices_of_inps_to_detach=detached,
        sanitized_aot_config=how,
        serialized_bw_module=SimpleNamespace(deserialize=lambda: backward.graph),
    )
    result: Any = BundledAOTAutogradResult(**told)
    programs = make_boxed_func(forward), disable(make_boxed_func(backward))
    call = result._apply_runtime_wrappers(*programs, True, how)
    return disable(lambda *inputs: call([*inputs]))


def _program(half: tuple[Any, ...], session: Session) -> GraphProgram:
    assumed, kept, (make, given) = half
    program = GraphProgram(lambda: make(*given), session)
    captured = unpacked(kept, session.title)
    special = program.special(assumed, captured, len(assumed.inputs), None)
    program.specials = OrderedDict({assumed: [special]})
    return program
