"""The commands that look at the machine: `weft bench` and `weft doctor`.

weft bench cpu --only softmax
weft doctor --calibrate
"""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import arguments as given
from weft.cli import lowbit_bench
from weft.cli.calibrate import calibrate, rates_table, samples_of, times_in
from weft.cli.doctor import examine
from weft.cli.lowbit_text import lowbit_json, lowbit_tables
from weft.cli.output import show, show_error, table, working, write_json
from weft.cli.price_check import check_prices, study_json, study_lines, study_tables
from weft.cli.suite import DYNAMIC, SUITES, Settings
from weft.cli.suite import chosen as workloads_of
from weft.cli.suite import run as run_suite
from weft.cli.suite_text import suite_json, suite_table, summary_lines
from weft.core.errors import SourceError, WeftError, choice
from weft.targets.cpu import host
from weft.tune.price import rates
from weft.tune.price.fit import fit

BAD_INPUT, MISSED = 2, 1


def tell(line: str) -> None:
    print(f"weft: {line}", file=sys.stderr, flush=True)


def bench_command(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help=" or ".join(SUITES))],
    only: Annotated[
        str | None, typer.Option("--only", metavar="REGEX", help="workloads or groups it finds")
    ] = None,
    backends: Annotated[
        str | None, typer.Option("--backends", help="columns of the table; default: the suite's")
    ] = None,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="programs for any size beside those for one")
    ] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="for every backend; default: torch's")
    ] = None,
    minutes: given.Minutes = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="of one round; default: 0.1")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="the median counts")] = 5,
    model: given.Prices = False,
    quantized: given.Quantized = False,
    llama: given.Llama = None,
    json_path: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="all figures; - is stdout")
    ] = None,
) -> None:
    """Time DEVICE's suite, each backend in its own process; exit 1 where weft is wrong."""
    choice("device", device, SUITES)
    if model:
        if backends or dynamic or threads or seconds:
            raise SourceError("weft bench --model takes --only, --minutes, --rounds and --json")
        bench_prices(device, only, rounds, minutes, json_path)
        return
    if quantized:
        if device != "cpu" or dynamic:
            raise SourceError("weft bench cpu --quantized is of CPUs, and takes no --dynamic")
        run = lowbit_bench.settings_of(backends, only, threads, seconds, rounds, minutes, llama)
        bench_quantized(run, json_path)
        return
    default = DYNAMIC if dynamic else SUITES[device].backends
    chosen = default if backends is None else tuple(backends.split(","))
    settings = Settings(device, chosen, only, threads, seconds or 0.1, rounds, minutes)
    results = run_suite(settings, tell)
    if json_path is not None:
        write_json(suite_json(results), json_path)
    if json_path != "-":
        show(suite_table(results), *summary_lines(results))
    if not results.passed:
        raise typer.Exit(MISSED)


def bench_quantized(settings: lowbit_bench.Settings, json_path: str | None) -> None:
    """Time the layer of few bits; exit 1 where weft is wrong or fails."""
    results = lowbit_bench.run(settings, tell)
    if json_path is not None:
        write_json(lowbit_json(results), json_path)
    if json_path != "-":
        show(*lowbit_tables(results))
    if not results.passed:
        raise typer.Exit(MISSED)


def bench_prices(
    device: str, only: str | None, rounds: int, minutes: float | None, json_path: str | None
) -> None:
    """Compare the exact price of kernels with the time that they take."""
    if device != "cpu":
        raise SourceError("weft bench --model measures on cpu")
    study = check_prices(workloads_of(only), rounds, tell, minutes)
    if json_path is not None:
        write_json(study_json(study), json_path)
    if json_path != "-":
        show(*study_tables(study), *study_lines(study))


def doctor_command(
    measure: Annotated[
        bool, typer.Option("--calibrate", help="measure what the exact price counts with")
    ] = False,
    fitted: Annotated[
        Path | None,
        typer.Option("--fit", metavar="FILE", help="fit that to `weft bench cpu --model --json`"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the findings as JSON")] = False,
) -> None:
    """What weft needs and what this machine has."""
    if fitted is not None:
        fit_rates(fitted, as_json)
        return
    if measure:
        measure_rates(as_json)
        return
    with working("looking"):
        facts = examine()
    missing = [fact for fact in facts if fact.needed and not fact.ok]
    if as_json:
        write_json({"ok": not missing, "facts": [asdict(fact) for fact in facts]}, None)
    else:
        show(table("", ["", "", "found"], [[f.name, f.status, f.found] for f in facts]))
    for fact in missing:
        show_error(WeftError(f"{fact.name}: {fact.found}; {fact.remedy}"))
    if missing:
        raise typer.Exit(BAD_INPUT)


def fit_rates(file: Path, as_json: bool) -> None:
    """Fit the rates to kernels that were timed; kept where others are then predicted better."""
    target = host()
    try:
        times = times_in(file.read_text(), tell)
    except (OSError, UnicodeError, WeftError) as error:
        raise SourceError(f"{file}: {error}") from None
    samples = samples_of(times, tell)
    found = fit(samples, rates.rates_of(target), target)
    tell(f"prices of {len(samples)} kernels are off by {found.before:.3f} (root mean square of "
         f"logs), by {found.after:.3f} where those were held out")  # fmt: skip
    if found.kept:
        keep_rates(found.rates, as_json)
    else:
        tell("no better on what was held out: the rates stay as they are")


def measure_rates(as_json: bool) -> None:
    """Measure the rates of the exact price on this machine, and keep them."""
    keep_rates(calibrate(host(), tell), as_json)


def keep_rates(found: rates.Rates, as_json: bool) -> None:
    target = host()
    start = rates.default_rates(target)
    path = rates.rates_path(target)
    rates.write_rates(path, found, rates.machine_of(target))
    if as_json:
        write_json({"default": asdict(start), "measured": asdict(found)}, None)
    else:
        show(rates_table(start, found), f"written to {path}")
