"""The command line: weft compile | run | explain | export | tune | minify | bench | cache | doctor.

weft compile -c "torch.relu(torch.randn(4))" --ir loop
"""

import os
import sys
import traceback
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from weft.cli import arguments as given
from weft.cli import generating, measuring, running, tuning
from weft.cli.bench import Bench
from weft.cli.compiling import LANGUAGES, LEVELS, compile_program, device_name, target_for
from weft.cli.generate import Job
from weft.cli.kernels import check_kernels, first_wrong, kernel_line, kernel_table, kernels_json
from weft.cli.measuring import BAD_INPUT, MISSED, tell
from weft.cli.minify import minify
from weft.cli.output import show, show_error, table, working, write_json, write_text
from weft.cli.program import IrText, Source, SourceSpec
from weft.cli.source import load
from weft.config import config
from weft.core.errors import WeftError, choice
from weft.explain.command import explain_command
from weft.export.command import export_command
from weft.options import Options
from weft.runtime import cache_size
from weft.tune.database import Row

INTERNAL = 3

app = typer.Typer(
    help="PyTorch programs through six levels of IR to fused native code.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("compile")
def compile_command(
    source: given.Source = None,
    text: given.Text = None,
    ir: Annotated[
        str | None, typer.Option("--ir", metavar="LEVEL", help=", ".join(LEVELS + LANGUAGES))
    ] = None,
    target: given.Target = "auto",
    fuse: given.Fuse = "greedy",
    search: given.Search = "off",
    random: given.Random = "fused",
    fallback: given.Fallback = "aten",
    dynamic: given.Dynamic = False,
    passes: given.Passes = "",
    schedule: given.Schedule = "",
    verbose: given.Verbose = 0,
    output: Annotated[
        str | None, typer.Option("-o", metavar="PATH", help="a file to write")
    ] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="each CUDA kernel's grid, registers, spills, ...")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the summary as JSON")] = False,
    seed: given.Seed = 0,
) -> None:
    """Compile SOURCE; print one level of IR, or a summary."""
    if ir is not None:
        choice("--ir", ir, LEVELS + LANGUAGES)
    target = target_for(ir, target)
    if stats:
        running.require_stats(target)
    chosen = given.options(locals(), profile=stats)
    with working("loading"):
        program = load(SourceSpec(text, source, seed, meta=True))
    with working("compiling"), redirect_stdout(sys.stderr if as_json else sys.stdout):
        compiled = compile_program(program, chosen)
        level = compiled.ir(ir) if ir is not None else None
    if as_json:
        facts = {"source": program.title, **running.report_json(compiled)}
        write_json(facts if ir is None else {**facts, "ir": {ir: level}}, output)
    elif level is not None:
        write_text(level, output)
    elif output is not None:
        write_text(compiled.ir("source"), output)
    else:
        show(*running.report_tables(program.title, compiled, foretold=stats))


@app.command("run")
def run_command(
    source: given.Source = None,
    text: given.Text = None,
    bench: Annotated[bool, typer.Option("--bench", help="time it beside other backends")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="time per kernel")] = False,
    check: given.Check = False,
    simulate: given.Simulate = False,
    backends: given.Backends = "eager,inductor,weft",
    generate: given.Generate = None,
    tokens: given.Tokens = 64,
    prompt_tokens: given.PromptTokens = 0,
    batch: given.Batch = 1,
    quantize: given.Quantize = None,
    activations: given.Activations = None,
    temperature: given.Temperature = 0.0,
    top_k: given.TopK = 0,
    top_p: given.TopP = 1.0,
    json_path: given.JsonPath = None,
    target: given.Target = "auto",
    fuse: given.Fuse = "greedy",
    search: given.Search = "off",
    fallback: given.Fallback = "aten",
    dynamic: given.Dynamic = False,
    passes: given.Passes = "",
    schedule: given.Schedule = "",
    verbose: given.Verbose = 0,
    seed: given.Seed = 0,
) -> None:
    """Run SOURCE, check it against float64 eager; exit 1 where it misses."""
    chosen = given.options(locals())
    spec = SourceSpec(text, source, seed, device=device_name(chosen))
    quiet = json_path == "-"
    job = Job(tokens, batch, quantize, activations, temperature, top_k, top_p)
    if generate is not None or prompt_tokens:
        text = generate or ""
        facts, passed = run_generation(spec, chosen, text, prompt_tokens, job, backends, quiet)
    elif replace(job, count=Job.count) != Job():
        raise WeftError("how tokens are generated takes --generate or --prompt-tokens")
    elif bench:
        facts, passed = run_compared(spec, chosen, backends, quiet)
    else:
        facts, passed = run_alone(spec, chosen, quiet, check)
    if json_path is not None:
        write_json(facts, json_path)
    if not passed:
        raise typer.Exit(MISSED)


def run_compared(
    spec: SourceSpec, chosen: Options, backends: str, quiet: bool
) -> tuple[dict[str, Any], bool]:
    """Times a program by each backend; whether all are right."""
    with Bench(backends.split(","), chosen) as workers, working("comparing"):
        comparison = workers.compare(spec)
    if not quiet:
        show(running.comparison_table(comparison))
    facts = running.comparison_json(comparison)
    return facts, facts["passed"]


def run_generation(
    spec: SourceSpec, chosen: Options, text: str, length: int, job: Job, backends: str, quiet: bool
) -> tuple[dict[str, Any], bool]:
    """Continues a text by each backend; whether all give the tokens of the first, or any by
    chance."""
    if spec.path is None:
        raise WeftError("--generate takes a model folder")
    encoding = generating.Encoding(spec.path)
    prompt, _ = generating.prompt_of(encoding, spec, text, length), job.choice
    with Bench(backends.split(","), chosen) as workers, working("generating"):
        rows = generating.compare(spec, workers, prompt, job)
    title = f"{spec.path}: {len(prompt)} tokens, then {job.count}"
    title += f", {job.batch} rows" if job.batch > 1 else ""
    if not quiet:
        shown = rows[0].tokens[0] if rows[0].tokens else ()
        show(generating.generation_table(title, rows, len(prompt)), encoding.text(shown))
    same = (job.temperature or row.tokens == rows[0].tokens for row in rows)
    passed = all(row.failure is None for row in rows) and all(same)
    return generating.generation_json(title, rows, len(prompt)), passed


def run_alone(
    spec: SourceSpec, chosen: Options, quiet: bool, check: bool
) -> tuple[dict[str, Any], bool]:
    """Runs a program on weft alone and prints its tables.

    Returns the facts for --json, and whether all checks passed.
    """
    program = load(spec)
    if check and isinstance(program, IrText):
        raise WeftError("--check takes a PyTorch program: IR text is checked as a whole")
    with redirect_stdout(sys.stderr if quiet else sys.stdout):
        outcome = running.run_once(program, chosen, spec.seed)
        checks = check_kernels(program, chosen) if check and isinstance(program, Source) else []
    facts, passed = running.outcome_json(program.title, outcome), outcome.passed
    if not quiet:
        show(running.outcome_table(program.title, outcome), running.outcome_line(outcome))
        profile = chosen.profile
        show(*(running.report_tables(program.title, outcome.compiled) if profile else ()))
        if check:
            show(kernel_table("kernels", checks), kernel_line(checks, passed))
    if check:
        facts["kernels"] = kernels_json(checks)
        passed = passed and first_wrong(checks) is None
    return facts, passed


@app.command("minify")
def minify_command(
    source: given.Source = None,
    text: given.Text = None,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="look for wrong numbers, not for errors")
    ] = False,
    target: given.Target = "auto",
    fuse: given.Fuse = "greedy",
    fallback: given.Fallback = "aten",
    dynamic: given.Dynamic = False,
    passes: given.Passes = "",
    output: Annotated[
        str | None, typer.Option("-o", metavar="PATH", help="a file to write")
    ] = None,
    seed: given.Seed = 0,
) -> None:
    """Print the smallest program that fails as SOURCE does, as a Python file."""
    chosen = given.options(locals(), dynamic=dynamic or None)
    program = load(SourceSpec(text, source, seed, device=device_name(chosen)))
    if isinstance(program, IrText):
        raise WeftError("weft minify takes a PyTorch program, not IR text")
    with working("minifying"), redirect_stdout(sys.stderr):
        minimal = minify(program, chosen, accuracy)
    print(f"weft: {minimal.steps} of {minimal.of} steps: {minimal.why}", file=sys.stderr)
    write_text(minimal.text, output)


@app.command("tune", no_args_is_help=True)
def tune_command(
    source: given.Source = None,
    text: given.Text = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="for a graph at most")] = 60.0,
    shows: Annotated[bool, typer.Option("--show", help="all that was found on this cache")] = False,
    forget: Annotated[
        str | None, typer.Option("--forget", metavar="PART", help="kernels whose name has that")
    ] = None,
    export: Annotated[
        str | None, typer.Option("--export", metavar="FILE", help="write what was found")
    ] = None,
    merge: Annotated[
        str | None, typer.Option("--import", metavar="FILE", help="add what --export wrote")
    ] = None,
    predict: Annotated[
        bool, typer.Option("--predict", help="of a CUDA target: times, bounds, percent of peak")
    ] = False,
    target: given.Target = "auto",
    fuse: given.Fuse = "greedy",
    dynamic: given.Dynamic = False,
    as_json: Annotated[bool, typer.Option("--json", help="the rows as JSON")] = False,
    seed: given.Seed = 0,
) -> None:
    """Search the choices of SOURCE's kernels, by measuring, or without a device by prediction."""
    rows: list[Row] = []
    chosen = given.options(locals())
    if predict:
        if shows or forget or export or merge or as_json:
            told = "it takes SOURCE, --target, --fuse, --dynamic and --seed"
            raise WeftError(f"weft tune --predict prints a table of times: {told}")
        show(tuning.prediction(chosen, SourceSpec(text, source, seed)))
        return
    if source is not None or text is not None:
        spec = SourceSpec(text, source, seed, device=device_name(chosen))
        rows = tuning.tune(spec, chosen, seconds, tell)
    told = [] if source is None and text is None else [tuning.summary(rows)]
    told += tuning.maintain(forget, export, merge)
    rows = tuning.all_rows() if shows else rows
    if as_json:
        write_json([asdict(row) for row in rows], None)
    else:
        show(*([tuning.rows_table("tuned", rows)] if rows else []), *told)


@app.command("cache")
def cache_command(
    clear: Annotated[bool, typer.Option("--clear", help="remove every entry")] = False,
    show_usage: Annotated[bool, typer.Option("--show", help="what is there (the default)")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the same as JSON")] = False,
) -> None:
    """What the cache on disk holds, and its limit."""
    if clear:
        cache_size.clear(config.cache)
    found = cache_size.usage(config.cache)
    if as_json:
        facts = {"path": str(config.cache), "most_bytes": config.cache_bytes}
        write_json({**facts, "kinds": [asdict(kind) for kind in found]}, None)
    elif show_usage or not clear:
        rows = [[u.kind, str(u.entries), f"{u.bytes / 1e6:.1f}"] for u in found if u.entries]
        limit = f"{config.cache}, at most {config.cache_bytes / 1e9:g} GB"
        show(table(limit, ["kind", "entries", "MB"], rows))


app.command("explain", no_args_is_help=True)(explain_command)
app.command("export", no_args_is_help=True)(export_command)
app.command("bench", no_args_is_help=True)(measuring.bench_command)
app.command("doctor")(measuring.doctor_command)


def main(arguments: list[str] | None = None) -> None:
    """The console script: an error is one sentence on stderr, never a traceback."""
    try:
        app(arguments, prog_name="weft")
    except WeftError as error:
        show_error(error)
        sys.exit(BAD_INPUT)
    except BrokenPipeError:  # `weft compile ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if config.verbose:
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        show_error(
            WeftError(
                f"internal error, please report it: {type(error).__name__}: {error} "
                "(WEFT_VERBOSE=1 shows the whole of it)",
                f"{frame.filename} line {frame.lineno}:  {frame.line}",
            )
        )
        sys.exit(INTERNAL)


if __name__ == "__main__":
    main()
