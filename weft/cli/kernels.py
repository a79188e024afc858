"""`weft run --check`: checks each kernel against its loop nest, interpreted in float64.

checks = check_kernels(load(spec), Options())
first_wrong(checks).result.kernel

A kernel is fed with what the program really had, so that the first one that differs is at fault
and not one before it. Schedule, lowering and emission are between the two; the final results say
whether what stands above the loop level is right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch
from rich.console import Group

from weft.cli.check import Verdict, call, check_leaf, copied
from weft.cli.output import error_text, number, table
from weft.cli.program import Source
from weft.core.passes import PassLog
from weft.driver import Artifact, Builder, build, compiled, lower, runnable
from weft.frontend.graph import Captured, Runner
from weft.interpret import nests as interpret
from weft.interpret.memory import as_array, as_tensor
from weft.link.places import run_or_refuse
from weft.options import Options, find_target
from weft.scalar.nest import Buffer, Kernel, Program
from weft.scalar.ops import constant
from weft.scalar.resize import sizes_of, with_sizes
from weft.scalar.rows import expanded


@dataclass(frozen=True)
class KernelResult:
    """One output of a kernel; `own` is its loop nest in the program's dtypes, `reference` in
    float64."""

    kernel: str
    output: str
    where: str | None
    stored: torch.Tensor
    own: torch.Tensor
    reference: torch.Tensor


@dataclass(frozen=True)
class CheckedBuilder(Builder):
    """The back end, with a second run of every call that keeps what its kernels store."""

    results: list[KernelResult] = field(default_factory=list[KernelResult], compare=False)

    def __call__(self, captured: Captured) -> Runner:
        run = build(captured, self.options)
        artifact: Artifact = run.artifact  # type: ignore[attr-defined]
        options = self.options.on(captured.place)
        check = cache(partial(checker, artifact, options, captured.place))

        def checked(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
            self.results.extend(check()(tensors))  # before the program writes its inputs
            return run(tensors)

        checked.artifact = artifact  # type: ignore[attr-defined]
        return checked


def checker(
    artifact: Artifact, options: Options, place: torch.device
) -> Callable[[Sequence[torch.Tensor]], list[KernelResult]]:
    """From the inputs of a call to the results of its kernels, in order."""
    program = exposed(artifact.levels().made["loop"])
    log = PassLog()
    levels = lower(program, options, log)
    run, _ = runnable(levels, options, log, {}, place)
    run = run_or_refuse(run, place, find_target(options.target), options.simulate)

    def check(given: Sequence[Any]) -> list[KernelResult]:
        tensors, numbers = given[: len(program.inputs)], given[len(program.inputs) :]
        values = dict(zip(program.inputs, tensors, strict=True))
        values |= dict(zip(program.outputs, run(given), strict=True))
        held = {b.name: value.detach().cpu() for b, value in values.items()}
        sizes = zip(sizes_of(program).values(), map(constant, numbers), strict=True)
        nests = with_sizes(program, dict(sizes))
        return [r for kernels in by_output(expanded(nests)) for r in results_of(kernels, held)]

    return check


def exposed(program: Program) -> Program:
    """The program with every buffer that a step writes among its outputs."""
    written = [b for step in program.steps for b in step.outputs]
    outside = {b.name for b in (*program.inputs, *program.outputs)}
    inner = {b.name: b for b in written if b.name not in outside}
    return replace(program, outputs=(*program.outputs, *inner.values()))


def by_output(program: Program) -> list[list[Kernel]]:
    """Kernels in order; those that write one buffer together, where the last of them stands."""
    groups: list[list[Kernel]] = []
    for kernel in (s for s in program.steps if isinstance(s, Kernel)):  # not repeated
        names = {b.name for b in kernel.outputs}
        mine = [g for g in groups if any(b.name in names for k in g for b in k.outputs)]
        groups = [g for g in groups if g not in mine] + [[*(k for g in mine for k in g), kernel]]
    return groups


def results_of(kernels: list[Kernel], held: dict[str, torch.Tensor]) -> list[KernelResult]:
    """What kernels stored, beside their nests on the inputs that they had."""
    outputs = {b.name: b for kernel in kernels for b in kernel.outputs}
    inputs = {b.name: b for k in kernels for b in k.inputs if b.name not in outputs}
    title = " and ".join(kernel.name for kernel in kernels)
    nests = Program("loop", title, (*inputs.values(),), (*outputs.values(),), (*kernels,))
    arrays = [as_array(numbers_of(held[name], b)) for name, b in inputs.items()]
    own = map(as_tensor, interpret.run(nests, arrays))
    reference = map(as_tensor, interpret.run(nests, arrays, widen=True))
    where = next((kernel.where for kernel in kernels if kernel.where), None)
    return [
        KernelResult(title, name, where, numbers_of(held[name], b), narrow, wide)
        for (name, b), narrow, wide in zip(outputs.items(), own, reference, strict=True)
    ]


def numbers_of(tensor: torch.Tensor, buffer: Buffer) -> torch.Tensor:
    """What a buffer holds; two bf16 of an i32 as a complex number, as the interpreter has them."""
    if buffer.type.dtype.kind != "pair":
        return tensor.contiguous()
    halves = tensor.contiguous().view(torch.bfloat16).float()
    return torch.view_as_complex(halves.unflatten(-1, (-1, 2)))


@dataclass(frozen=True)
class KernelCheck:
    """One output of a kernel, and its verdict."""

    result: KernelResult
    verdict: Verdict

    @property
    def share(self) -> float | None:
        """The error as a multiple of its limit; None if the limit is 0."""
        return self.verdict.error / self.verdict.limit if self.verdict.limit else None


def check_kernels(source: Source, options: Options) -> list[KernelCheck]:
    """Calls the program once, and checks every output of every kernel."""
    build = CheckedBuilder(options)
    call(source, compiled(copied(source.callable), build))
    return [KernelCheck(r, check_leaf(r.stored, r.own, r.reference)) for r in build.results]


def first_wrong(checks: Sequence[KernelCheck]) -> KernelCheck | None:
    return next((check for check in checks if not check.verdict.passed), None)


def kernel_table(title: str, checks: Sequence[KernelCheck]) -> Group:
    columns = ["kernel", "output", "relative error", "limit", "of limit", "check", ""]
    rows = [
        [c.result.kernel, c.result.output, error_text(c.verdict.error),
         error_text(c.verdict.limit), number(c.share, ".2g"),
         "ok" if c.verdict.passed else "FAILED", c.verdict.reason]
        for c in checks
    ]  # fmt: skip
    return table(title, columns, rows)


def kernel_line(checks: Sequence[KernelCheck], passed: bool) -> str:
    """The conclusion from the checks. `passed` says whether the program's outputs are right."""
    wrong = first_wrong(checks)
    if wrong is not None:
        place = f", of {wrong.result.where}" if wrong.result.where else ""
        return f"the first kernel that differs from its loop nest: {wrong.result.kernel}{place}"
    if passed:
        return f"{len(checks)} kernel outputs against their loop nests in float64: passed"
    return (
        "every kernel does what its loop nest says: look above the loop level (weft compile --ir)"
    )


def kernels_json(checks: Sequence[KernelCheck]) -> list[dict[str, Any]]:
    return [
        {"kernel": c.result.kernel, "output": c.result.output, "error": c.verdict.error,
         "limit": c.verdict.limit, "reason": c.verdict.reason, "passed": c.verdict.passed}
        for c in checks
    ]  # fmt: skip
