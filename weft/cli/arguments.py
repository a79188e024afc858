"""Arguments that several commands take alike: a SOURCE, and how it is compiled.

from weft.cli import arguments as given
def show(source: given.Source = None, text: given.Text = None, target: given.Target = "auto"): ...
"""

from typing import Annotated

import typer

from weft.cli.source import KINDS

Source = Annotated[str | None, typer.Argument(metavar="SOURCE", help=KINDS)]
Text = Annotated[
    str | None, typer.Option("-c", metavar="TEXT", help="Python text; its last line is the program")
]
Target = Annotated[str, typer.Option("--target", help="cpu, cpu:avx2, cuda:sm_90a, opencl ...")]
Fuse = Annotated[str, typer.Option("--fuse", help="none, greedy or all")]
Search = Annotated[str, typer.Option("--search", help="on, off or deep")]
Fallback = Annotated[str, typer.Option("--fallback", help="aten or error")]
Passes = Annotated[
    str, typer.Option("--passes", metavar="-NAME,..", help="schedule passes to leave out")
]
Schedule = Annotated[
    str, typer.Option("--schedule", metavar="FILE", help="choices, as --ir schedule prints them")
]
Dynamic = Annotated[bool, typer.Option("--dynamic", help="one program for all sizes")]
Seed = Annotated[int, typer.Option("--seed", help="decides every random value")]
Verbose = Annotated[
    int, typer.Option("-v", count=True, help="-v: passes and times, -vv: a diff per pass")
]
