"""A process that holds one backend and times it. It answers requests, which are lines of JSON:

python -m weft.cli.bench_worker
{"do": "load", "backend": "weft", "source": {"text": "torch.randn(4) + 1"}, "outputs": "out.pt"}
{"do": "round", "seconds": 0.2}
"""

import gc
import re
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

import weft
from weft.cli import hot_calls
from weft.cli.check import call
from weft.cli.clocks import CPUClock, CUDAClock
from weft.cli.compiling import Compiled, compile_ir, compile_source, text_as_source
from weft.cli.generate import Job, checked, resident_bytes, stored_bytes
from weft.cli.habits import measure
from weft.cli.peers import Peer, onnxruntime, openvino
from weft.cli.program import IrText, Source, SourceSpec
from weft.cli.sampling import Step
from weft.cli.source import load
from weft.driver import graph_backend
from weft.options import Options
from weft.runtime.child import answer

COLOUR = re.compile("\x1b\\[[0-9;]*m")  # torch's exporters print to a terminal even in errors


def main() -> None:
    """Answers each request on stdin."""
    answer(Session(), first_line)


def first_line(error: Exception) -> str:
    return (COLOUR.sub("", str(error)).strip().splitlines() or [""])[0]


class Session:
    """Answers requests about one program, which it loads. Each method is a request."""

    def __init__(self) -> None:
        self.call: Callable[[], Any] | None = None
        self.arena = 0  # bytes of memory that weft keeps between calls
        self.clock: CPUClock | CUDAClock = CPUClock()

    def load(
        self, backend: str, source: dict[str, Any], outputs: str, options: dict[str, Any]
    ) -> dict[str, Any]:
        """Compiles for one backend, and saves the first call's outputs to the file `outputs`."""
        self.call, self.arena = None, 0  # only one program is in memory
        gc.collect()
        spec = SourceSpec(**source)
        self.clock = CPUClock() if spec.device == "cpu" else CUDAClock(torch.device(spec.device))
        program = load(spec)
        start = time.perf_counter()
        compiled, made = ready(backend, program, Options(**options))
        out = call(made, made.callable)
        self.clock.wait()
        seconds = time.perf_counter() - start
        torch.save(pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, out), outputs)
        self.call = bound(made)
        torch.set_grad_enabled(made.wants_grad)
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
        self.call()  # warms up caches and threads
        return {"ms": self.clock.median(self.call, seconds) * 1e3}

    def memory(self) -> dict[str, Any]:
        """Bytes that a call needs beside its inputs and weights."""
        assert self.call is not None
        gc.collect()
        peak = self.clock.peak_bytes(self.call)
        return {"peak_bytes": None if peak is None else peak + self.arena * self.clock.arena_stays}

    def generate(
        self, backend: str, source: dict[str, Any], prompt: list[int], job: dict[str, Any],
        options: dict[str, Any],
    ) -> dict[str, Any]:  # fmt: skip
        """Compiles a language model's step, and generates tokens for the first time."""
        wanted = Job(**job)
        program = checked(load(SourceSpec(**source)), prompt, wanted)
        model: Any = program.callable
        stored, before = stored_bytes(model), resident_bytes()
        step: Any = Step(model, wanted.choice).eval()
        start = time.perf_counter()
        if backend in OPTIONS:
            made: Any = weft.compile(step, **{**options, **OPTIONS[backend]})
        else:
            made = OTHERS[backend](replace(program, callable=step), Options(**options))
        compiled = time.perf_counter() - start
        self.call = lambda: wanted.run(made, model, prompt)
        tokens, seconds = self.call()
        after, facts = resident_bytes(), {"stored_bytes": stored, "cold": compiled + seconds[0]}
        grown = None if before is None or after is None else after - before
        parts = [getattr(p, "made", [p]) for p in made.programs] if backend in OPTIONS else None
        programs = None if parts is None else sum(map(len, parts))
        return {"tokens": tokens, "grown_bytes": grown, "programs": programs, **facts}

    def generate_again(self) -> dict[str, Any]:
        """Seconds of each token."""
        assert self.call is not None
        return {"seconds": self.call()[1]}

    def hot_calls(self, backend: str, options: dict[str, Any]) -> dict[str, Any]:
        """Microseconds of calls of programs that this backend has compiled (hot_calls.py)."""
        chosen = Options(**options)
        return asdict(hot_calls.measure(lambda source: ready(backend, source, chosen)[1].callable))

    def habits(self, threads: int) -> dict[str, Any]:
        return asdict(measure(threads))


def bound(made: Source) -> Callable[[], Any]:
    """The call that is timed. Inputs and outputs of a peer are bound once, before it."""
    if isinstance(made.callable, Peer):
        return made.callable.bind(*made.args, **made.kwargs)
    return lambda: made.callable(*made.args, **made.kwargs)


def dynamo(source: Source, backend: str | Callable[..., Any], **settings: Any) -> Any:
    torch.compiler.reset()
    return torch.compile(source.callable, backend=backend, **settings)


def ready(
    backend: str, program: Source | IrText, options: Options
) -> tuple[Compiled | None, Source]:
    """Compiles the program for a backend; returns what weft compiled (or None), and the program."""
    if isinstance(program, IrText):  # only weft runs IR text
        compiled = compile_ir(program, options)
        return compiled, text_as_source(program, compiled, torch.initial_seed())
    if backend not in OPTIONS:
        return None, replace(program, callable=OTHERS[backend](program, options))
    compiled = compile_source(program, replace(options, **OPTIONS[backend]))
    return compiled, replace(program, callable=compiled)


OTHERS: dict[str, Callable[[Source, Options], Callable[..., Any]]] = {
    "eager": lambda source, _: source.callable,
    "inductor": lambda source, _: dynamo(source, "inductor"),
    "inductor-max-autotune": lambda source, _: dynamo(source, "inductor", mode="max-autotune"),
    "inductor-frozen": lambda source, _: dynamo(source, "inductor", options={"freezing": True}),
    "inductor-dynamic": lambda source, _: dynamo(source, "inductor", dynamic=True),
    "openvino": lambda source, _: openvino(source),
    "onnxruntime": lambda source, _: onnxruntime(source),
    "weft-dynamo": lambda source, options: dynamo(source, graph_backend(**asdict(options))),
}
# weft.compile, and its options
OPTIONS: dict[str, dict[str, Any]] = {
    "weft": {"freeze": False},
    "weft-untuned": {"freeze": False, "tune": "off"},
    "weft-searched": {"freeze": False, "search": "on"},
    "weft-frozen": {"freeze": True},
    "weft-dynamic": {"freeze": False, "dynamic": True},
}
BACKENDS = (*OTHERS, *OPTIONS)

if __name__ == "__main__":
    main()
