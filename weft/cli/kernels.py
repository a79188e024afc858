"""`weft run --check`: checks each kernel against its loop nest, interpreted in float64.

checks = check_kernels(load(spec), Options())
first_wrong(checks).result.kernel
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group

from weft.cli.check import Verdict, call, check_leaf, copied
from weft.cli.checking import CheckedBuilder, KernelResult
from weft.cli.output import error_text, number, table
from weft.cli.program import Source
from weft.driver import compiled
from weft.options import Options


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
