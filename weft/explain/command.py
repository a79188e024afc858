"""`weft explain SOURCE -o report.html`: one page that shows how a program was compiled, and why.

weft explain -c "torch.softmax(torch.randn(64,64), -1)" --search on -o softmax.html
"""

from contextlib import redirect_stdout
from io import StringIO
from typing import Annotated, Any

import typer

from weft.cli import arguments as given
from weft.cli.check import call
from weft.cli.compiling import compile_ir, compile_source, device_name, text_as_source
from weft.cli.output import show, working, write_text
from weft.cli.program import IrText, Source, SourceSpec
from weft.cli.source import load
from weft.core.errors import WeftError
from weft.explain.data import gather
from weft.explain.report import page
from weft.options import Options


def explain_command(
    source: given.Source = None,
    text: given.Text = None,
    output: Annotated[
        str, typer.Option("-o", metavar="PATH", help="the page to write; - is stdout")
    ] = "report.html",
    profile: Annotated[
        bool, typer.Option("--profile", help="run it, and show each kernel's measured time")
    ] = False,
    target: given.Target = "auto",
    fuse: given.Fuse = "greedy",
    search: given.Search = "off",
    fallback: given.Fallback = "aten",
    dynamic: given.Dynamic = False,
    passes: given.Passes = "",
    schedule: given.Schedule = "",
    seed: given.Seed = 0,
) -> None:
    """Write a page on how SOURCE was compiled: its levels, passes, prices, choices and memory."""
    options = given.options(locals())
    device = device_name(options) if profile else "cpu"
    with working("loading"):
        program = load(SourceSpec(text, source, seed, meta=not profile, device=device))
    with working("compiling"):
        compiled = compiled_for(program, options, seed)
    with working("explaining"):
        html = page(gather(program.title, compiled, options))
    write_text(html, output)
    if output != "-":
        show(f"{output}: {len(html.encode()) / 1e3:.0f} kB, {counted(compiled)}")


def compiled_for(program: Source | IrText, options: Options, seed: int) -> Any:
    """The compiled program; with `profile` it has run once, and its kernels are timed."""
    with redirect_stdout(StringIO()):
        if isinstance(program, IrText):
            compiled = compile_ir(program, options)
            source = text_as_source(program, compiled, seed) if options.profile else None
        else:
            compiled, source = compile_source(program, options), program
        if options.profile and source is not None:
            call(source, compiled, seed)
    if options.profile and not compiled.report.kernels:
        raise WeftError("--profile has no kernel to time: nothing was compiled")
    return compiled


def counted(compiled: Any) -> str:
    kernels, externs = len(compiled.report.kernels), len(compiled.report.externs)
    return f"{kernels} kernel{'s' * (kernels != 1)}, {externs} extern{'s' * (externs != 1)}"
