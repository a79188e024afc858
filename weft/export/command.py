"""`weft export SOURCE -o DIR`: a program as a C library that needs neither torch nor Python.

weft export -c "nn.Linear(64, 8)(torch.randn(4, 64))" --name linear -o linear
"""

import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import arguments as given
from weft.cli.output import show, working
from weft.cli.program import IrText, SourceSpec
from weft.cli.source import load
from weft.core.errors import WeftError
from weft.export.folder import check_name, write_folder
from weft.export.targets import targets_of
from weft.export.traced import trace, with_shapes


def export_command(
    source: given.Source = None,
    text: given.Text = None,
    output: Annotated[str, typer.Option("-o", metavar="DIR", help="the folder to write")] = "model",
    name: Annotated[
        str, typer.Option("--name", help="what C functions begin with; else the folder's")
    ] = "",
    target: Annotated[
        str,
        typer.Option("--target", help="cpu:avx2,cpu:avx512,cpu:neon,cpu:plain or sm_80,sm_90a"),
    ] = "cpu",
    signature: Annotated[
        list[str] | None,
        typer.Option("--signature", metavar="X=8x64,..", help="shapes of arguments; several times"),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="SOURCE takes gradients itself: it is a training step")
    ] = False,
    fuse: given.Fuse = "greedy",
    search: given.Search = "off",
    dynamic: given.Dynamic = False,
    passes: given.Passes = "",
    schedule: given.Schedule = "",
    verbose: given.Verbose = 0,
    seed: given.Seed = 0,
) -> None:
    """Write SOURCE as C: kernels, weights, a header, what builds them, and an example."""
    folder = Path(output).resolve()
    name = check_name(name or re.sub(r"\W", "_", folder.name.lower()))
    targets = targets_of(target)
    options = given.options({**locals(), "target": "cpu"}, freeze=True, random="fused")
    with working("loading"):
        program = load(SourceSpec(text, source, seed))
    if isinstance(program, IrText):
        raise WeftError("weft export takes a PyTorch program, not IR text")
    with working("compiling"), redirect_stdout(sys.stderr):
        sources = [with_shapes(program, text) for text in signature or ("",)]
        calls = [trace(source, options, targets, steps=train) for source in sources]
    with working("writing"):
        write_folder(folder, name, calls)
    show((folder / "weft-export.txt").read_text(encoding="utf-8").strip())
