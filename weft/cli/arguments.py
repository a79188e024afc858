"""Arguments that several commands take alike: a SOURCE, and how it is compiled.

from weft.cli import arguments as given
def show(source: given.Source = None, text: given.Text = None, target: given.Target = "auto"):
    chosen = given.options(locals())
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.cli.source import KINDS, load_ir
from weft.options import Options

Source = Annotated[str | None, typer.Argument(metavar="SOURCE", help=KINDS)]
Text = Annotated[
    str | None, typer.Option("-c", metavar="TEXT", help="Python text; its last line is the program")
]
Target = Annotated[str, typer.Option("--target", help="cpu, cpu:avx2, cuda:sm_90a, opencl ...")]
Fuse = Annotated[str, typer.Option("--fuse", help="none, greedy or all")]
Search = Annotated[str, typer.Option("--search", help="on, off or deep")]
Random = Annotated[str, typer.Option("--random", help="fused, or eager's numbers")]
Fallback = Annotated[str, typer.Option("--fallback", help="aten or error")]
Passes = Annotated[
    str, typer.Option("--passes", metavar="-NAME,..", help="schedule passes to leave out")
]
Schedule = Annotated[
    str, typer.Option("--schedule", metavar="FILE", help="choices, as --ir schedule prints them")
]
Dynamic = Annotated[bool, typer.Option("--dynamic", help="one program for all sizes")]
Llama = Annotated[
    str | None, typer.Option("--llama", metavar="FOLDER", help="of llama.cpp's libraries: a peer")
]
Minutes = Annotated[
    float | None, typer.Option("--minutes", help="begin no workload after that long")
]
Prices = Annotated[
    bool, typer.Option("--model", help="exact prices beside times, of candidates as well")
]
Quantized = Annotated[
    bool, typer.Option("--quantized", help="a decoder layer with weights of few bits")
]
Seed = Annotated[int, typer.Option("--seed", help="decides every random value")]
Verbose = Annotated[
    int, typer.Option("-v", count=True, help="-v: passes and times, -vv: a diff per pass")
]
# Of runs.
Check = Annotated[
    bool, typer.Option("--check", help="every kernel by itself; names the first that differs")
]
Simulate = Annotated[bool, typer.Option("--simulate", help="run GPU kernels on the CPU, checked")]
Backends = Annotated[str, typer.Option("--backends", help="what --bench compares")]
JsonPath = Annotated[
    str | None, typer.Option("--json", metavar="PATH", help="results as JSON; - is stdout")
]
# Of generation (generate.py).
Generate = Annotated[
    str | None,
    typer.Option("--generate", metavar="TEXT", help="tokens that a model folder continues"),
]
Tokens = Annotated[int, typer.Option("--tokens", min=1, help="new ones for --generate")]
PromptTokens = Annotated[
    int, typer.Option("--prompt-tokens", min=0, help="generate after so many, by chance")
]
Batch = Annotated[int, typer.Option("--batch", min=1, help="prompts, each a token shorter")]
Quantize = Annotated[str | None, typer.Option("--quantize", help="int8, int4 or fp8 Linears")]
Activations = Annotated[str | None, typer.Option("--activations", help="int8, for --quantize")]
Temperature = Annotated[float, typer.Option("--temperature", help="0: the likeliest token")]
TopK = Annotated[int, typer.Option("--top-k", help="chosen from so many tokens; 0: from all")]
TopP = Annotated[float, typer.Option("--top-p", help="from those that together are as likely")]


def options(parameters: Mapping[str, Any], **more: Any) -> Options:
    """What a command's parameters say of compiling: those that are named as options, and `more`.

    Without a choice random numbers are eager's, as what is computed is compared with it.
    """
    named: dict[str, Any] = {"random": "eager"}
    named |= {f.name: parameters[f.name] for f in fields(Options) if f.name in parameters}
    if named.get("schedule"):  # the path of a file
        named["schedule"] = load_ir(Path(named["schedule"])).text
    return Options(**{**named, **more})
