"""weft tune: searches the choices of a program's kernels by measuring, and keeps what it finds.

rows = tune(spec, Options(target="cpu"), seconds=60, tell=print)
show(rows_table("softmax", rows))
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.cli.check import call
from weft.cli.compiling import compile_source
from weft.cli.output import microseconds, table
from weft.cli.predicting import levels_of, simulated, without_device
from weft.cli.program import IrText, SourceSpec
from weft.cli.source import load
from weft.core.errors import WeftError
from weft.options import Options
from weft.tune import predicted
from weft.tune.database import Database, Row, latest, read_rows
from weft.tune.tuner import SETTINGS, Settings, database


def tune(
    spec: SourceSpec, options: Options, seconds: float, tell: Callable[[str], None]
) -> list[Row]:
    """Tune every graph of a program for its own arguments; the rows that were found.

    A CUDA target without a device is tuned by the exact price.
    """
    program = load(spec)
    if isinstance(program, IrText):
        raise WeftError("weft tune takes a PyTorch program, not IR text")
    settings = Settings(seconds, tell)
    if without_device(options):
        tell(f"PyTorch finds no device: {options.target} is tuned by its predicted times")
        for levels in levels_of(program, options):
            greedy = options.fuse == "greedy"
            predicted.tune(levels, options.target, settings, simulated, greedy)
        return settings.rows
    token = SETTINGS.set(settings)
    try:
        compiled = compile_source(program, replace(options, tune="now"))
        call(replace(program, callable=compiled), compiled)
    finally:
        SETTINGS.reset(token)
    return settings.rows


def rows_table(title: str, rows: Sequence[Row]) -> Any:
    """Each kernel with its time by default and tuned, and what was decided."""
    columns = ["kernel", "target", "default us", "tuned us", "ratio", "times are", "decisions"]
    return table(title, columns, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    times = microseconds(row.default_us), microseconds(row.us)
    ratio = f"{row.us / row.default_us:.2f}" if row.default_us else ""
    kind = "predicted, no device" if row.predicted else "measured"
    return [row.kernel, row.target, *times, ratio, kind, decided(row)]


def decided(row: Row) -> str:
    return ", ".join(f"{name} = {option}" for name, option in row.decisions.items()) or "default"


def summary(rows: Sequence[Row]) -> str:
    """How much of their time the kernels take now, together."""
    programs, kernels = [r for r in rows if r.whole], [r for r in rows if not r.whole]
    how = "predicted to be faster" if any(r.predicted for r in rows) else "faster"
    told = [
        f"{sum(bool(r.decisions) for r in some)} of {len(some)} {what} are {how}: "
        f"all take {sum(r.us for r in some) / before:.2f} of their time"
        for what, some in (("programs", programs), ("kernels", kernels))
        if (before := sum(r.default_us for r in some))
    ]
    return "; ".join(told) or "nothing new to tune"


def maintain(forget: str | None, export: str | None, merge: str | None) -> list[str]:
    """Forget rows, write all to a file, add those of a file; what was done, in words."""
    known, done = database(), list[str]()
    if merge is not None:
        found, rows = latest(read_rows(Path(merge))).values(), known.rows()
        counts = latest([*rows.values(), *found])
        new = [r for r in found if counts[r.key] is r and r != rows.get(r.key)]
        known.add(new)
        done.append(f"{len(new)} of {len(found)} rows of {merge} are new")
    if forget is not None:
        done.append(f"{known.forget(forget)} rows forgotten")
    if export is not None:
        Database(Path(export)).add(all_rows())
        done.append(f"{len(all_rows())} rows written to {export}")
    return done


def all_rows() -> list[Row]:
    return list(database().rows().values())
