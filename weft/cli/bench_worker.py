"""One process that holds one backend and times it when asked; the bench talks to it in lines.

python -m weft.cli.bench_worker
{"do": "load", "backend": "weft", "source": {"text": "torch.randn(4) + 1"}, "outputs": "out.pt"}
{"do": "round", "seconds": 0.2}
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch.utils import _pytree as pytree

from weft.cli.check import call
from weft.cli.clocks import Clock, CPUClock, CUDAClock
from weft.cli.compiling import Compiled, compile_ir, compile_source, text_as_source
from weft.cli.habits import measure
from weft.cli.peers import PEERS, Peer
from weft.cli.program import IrText, Source, SourceSpec
from weft.cli.source import load
from weft.core.errors import WeftError
from weft.driver import graph_backend
from weft.options import Options

Backend = Callable[[Source | IrText, Options], tuple[Compiled | None, Source]]
COLOUR = re.compile("\x1b\\[[0-9;]*m")  # torch's exporters print to a terminal even in errors


def main() -> None:
    """Answers each line of stdin; what the program itself prints goes to stderr."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = Session()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = getattr(session, request.pop("do"))(**request)
        except WeftError as error:
            reply = {"error": error.message, "where": error.where}
        except Exception as error:  # a backend's own failure is its row of the table
            first = (COLOUR.sub("", str(error)).strip().splitlines() or [""])[0]
            reply = {"error": f"{type(error).__name__}: {first}", "where": None}
        print(json.dumps(reply), file=replies, flush=True)


class Session:
    """The program that is loaded now."""

    def __init__(self) -> None:
        self.call: Callable[[], Any] | None = None
        self.arena = 0  # bytes that stay between calls
        self.clock: Clock = CPUClock()

    def load(
        self,
        backend: str,
        source: dict[str, Any],
        outputs: str,
        options: dict[str, Any],
    ) -> dict[str, Any]:
        """Compiles for one backend, saves what the first call gives."""
        self.call, self.arena = None, 0  # one program at a time stands in memory
        gc.collect()
        spec = SourceSpec(**source)
        self.clock = CPUClock() if spec.device == "cpu" else CUDAClock(torch.device(spec.device))
        program = load(spec)
        start = time.perf_counter()
        compiled, ready = BACKENDS[backend](program, Options(**options))
        out = call(ready, ready.callable)
        self.clock.wait()
        seconds = time.perf_counter() - start
        torch.save(pytree.tree_map(detached, out), outputs)
        self.call = bound(ready)
        torch.set_grad_enabled(ready.wants_grad)
        facts: dict[str, Any] = {"compile_seconds": seconds}
        if compiled is not None:
            facts["kernels"] = len(compiled.report.kernels)
            facts["externs"] = [op for op, _, _ in compiled.report.externs]
            facts["predicted_us"] = sum(k.predicted_us for k in compiled.report.kernels)
            self.arena = compiled.report.arena_bytes
        return facts

    def round(self, seconds: float) -> dict[str, Any]:
        """Median milliseconds of a call, over `seconds` of calls."""
        assert self.call is not None
        self.call()  # wakes caches and threads
        return {"ms": self.clock.median(self.call, seconds) * 1e3}

    def memory(self) -> dict[str, Any]:
        """Bytes that a call needs beside its inputs and weights."""
        assert self.call is not None
        gc.collect()
        peak = self.clock.peak_bytes(self.call)
        return {"peak_bytes": None if peak is None else peak + self.arena * self.clock.arena_stays}

    def habits(self, threads: int) -> dict[str, Any]:
        return asdict(measure(threads))


def bound(ready: Source) -> Callable[[], Any]:
    """The call that is timed; a peer keeps its inputs and outputs bound."""
    if isinstance(ready.callable, Peer):
        return ready.callable.bind(*ready.args, **ready.kwargs)
    return lambda: ready.callable(*ready.args, **ready.kwargs)


def detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def with_callable(source: Source, function: Callable[..., Any]) -> Source:
    return Source(function, source.args, source.kwargs, source.title, source.file)


def of_pytorch(program: Source | IrText) -> Source:
    if isinstance(program, IrText):
        raise WeftError("PyTorch does not run weft's IR text")
    return program


def eager(program: Source | IrText, options: Options) -> tuple[None, Source]:
    return None, of_pytorch(program)


def inductor(mode: str | None) -> Backend:
    def compiled(program: Source | IrText, options: Options) -> tuple[None, Source]:
        return None, through_dynamo(of_pytorch(program), "inductor", mode)

    return compiled


def weft_dynamo(program: Source | IrText, options: Options) -> tuple[None, Source]:
    return None, through_dynamo(of_pytorch(program), graph_backend(**asdict(options)))


def through_dynamo(
    source: Source, backend: str | Callable[..., Any], mode: str | None = None
) -> Source:
    torch.compiler.reset()
    return with_callable(source, torch.compile(source.callable, backend=backend, mode=mode))


def peer(make: Callable[[Source], Peer]) -> Backend:
    def compiled(program: Source | IrText, options: Options) -> tuple[None, Source]:
        source = of_pytorch(program)
        return None, with_callable(source, make(source))

    return compiled


def compiled_by_weft(program: Source | IrText, options: Options) -> tuple[Compiled, Source]:
    if isinstance(program, IrText):
        compiled = compile_ir(program, options)
        return compiled, text_as_source(program, compiled, torch.initial_seed())
    compiled = compile_source(program, options)
    return compiled, with_callable(program, compiled)


BACKENDS: dict[str, Backend] = {
    "eager": eager,
    "inductor": inductor(None),
    "inductor-max-autotune": inductor("max-autotune"),
    **{name: peer(make) for name, make in PEERS.items()},
    "weft": compiled_by_weft,
    "weft-dynamo": weft_dynamo,
}

if __name__ == "__main__":
    main()
