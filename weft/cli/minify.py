"""`weft minify`: the smallest part of a program that weft fails on, by torch's own minifier.

minimal = minify(load(spec), Options(), accuracy=False)
minimal.text          # a Python file: the module, its inputs, the call that fails

Dynamo splits the program into graphs, as for every compilation. In the first one that fails, the
minifier drops steps, inputs and outputs as long as the rest fails in the same way.
"""

# This file reaches into torch: its minifier and its printer of modules have no public names.
# pyright: reportPrivateUsage=false

import contextlib
import copy
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch._dynamo as dynamo
from torch import nn
from torch._dynamo.debug_utils import NNModuleToString
from torch._functorch.fx_minifier import minifier
from torch.utils import _pytree as pytree

from weft.cli.check import call, check, run_eager, run_reference, worst
from weft.cli.program import Source
from weft.core.errors import SourceError, WeftError
from weft.driver import Builder, Session, autograd
from weft.options import Options

FX = torch.fx.GraphModule
Inputs = Sequence[Any]
Fails = Callable[[FX, Inputs], bool]

# Matches reasons for running in eager that are defects: exceptions, not sentences of weft.
DEFECT = re.compile(r"(?!UnsupportedOpError)\w+(Error|Iteration): ")


@dataclass(frozen=True)
class Minimal:
    """The smallest program: its steps, those `of` the original, the failure, the text of a file."""

    steps: int
    of: int
    why: str
    text: str


def minify(source: Source, options: Options, accuracy: bool) -> Minimal:
    """The smallest program that fails as `source` does; SourceError if that does not fail."""
    run_eager(source)  # the program's own mistake is a SourceError with its line
    fault = inaccurate if accuracy else raises
    for graph, inputs in graphs_of(source):
        why = fault(graph, inputs, options)
        if why is None:
            continue
        kind = why.split(":")[0]

        def fails(part: FX, given: Inputs, kind: str = kind) -> bool:
            found = fault(part, given, options)
            return found is not None and found.split(":")[0] == kind

        told = contextlib.redirect_stderr(io.StringIO())  # what each attempt prints
        with told, torch.set_grad_enabled(source.wants_grad):
            smallest, given = minifier(graph, list(inputs), fails, lambda *_: None)
        why = fault(smallest, given, options) or why
        text = file_text(smallest, given, why, options, fails)
        return Minimal(count(smallest), count(graph), why, text)
    if accuracy:
        raise SourceError(f"{source.title} is as near to float64 as eager is: nothing to minify")
    raise SourceError(f"{source.title} compiles and runs: nothing to minify (--accuracy looks at "
                      "its numbers)")  # fmt: skip


def count(graph: FX) -> int:
    """The number of calls in a graph."""
    return sum(n.op.startswith("call_") for n in graph.graph.nodes)


def graphs_of(source: Source) -> list[tuple[FX, Inputs]]:
    """Dynamo's graphs in one eager run, each with its inputs."""
    found: list[tuple[FX, Inputs]] = []

    def backend(graph: FX, examples: Inputs) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            found.append((graph, copied(inputs)))
            return graph.forward(*inputs)

        return run

    torch.compiler.reset()
    with dynamo.config.patch(allow_rnn=True):
        call(source, dynamo.optimize(backend, dynamic=False)(source.callable))
    return found


def copied(inputs: Inputs) -> list[Any]:
    """Copies of the inputs that are leaves: a graph may write to them, and compute gradients."""
    return pytree.tree_map_only(
        torch.Tensor, lambda t: copy.deepcopy(t.detach()).requires_grad_(t.requires_grad), [*inputs]
    )


# --- what goes wrong


class Eager(nn.Module):
    """A graph as a module that returns its results, and the gradients that inputs require."""

    def __init__(self, graph: FX) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *inputs: Any) -> Any:
        return with_gradients(self.graph, inputs)


def with_gradients(run: Callable[..., Any], inputs: Inputs) -> Any:
    out = run(*inputs)
    wanted = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    results = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    sums = [t.abs().sum() for t in results if t.requires_grad]
    if not sums or not wanted:
        return out, ()
    return out, torch.autograd.grad(sums, wanted, allow_unused=True)


def ours(source: Source, graph: FX, session: Session) -> Any:
    """The results and gradients of the graph, compiled by weft."""
    with torch.set_grad_enabled(source.wants_grad):
        compiled = autograd.graph_backend(session)(graph, list(source.args))
    return call(source, lambda *inputs: with_gradients(compiled, inputs))


def raises(graph: FX, inputs: Inputs, options: Options) -> str | None:
    """The error of weft on a graph that eager runs; None if there is none.

    weft may raise it, or record it as its reason for running in eager.
    """
    source = Source(Eager(graph), tuple(inputs), {}, "the graph")
    session = replace(Builder(options).session(), debug=True)
    try:
        run_eager(source)
    except SourceError:  # the minifier may try a part that does not run
        return None
    try:
        ours(source, graph, session)
    except Exception as error:
        message = error.message if isinstance(error, WeftError) else str(error)
        return f"{type(error).__name__}: {message.strip().splitlines()[0] if message else ''}"
    return next(filter(DEFECT.match, session.reasons), None)


def inaccurate(graph: FX, inputs: Inputs, options: Options) -> str | None:
    """How far weft is from float64, if the accuracy check fails; else None."""
    source = Source(Eager(graph), tuple(inputs), {}, "the graph")
    try:
        eager, reference = run_eager(source), run_reference(source)
        out = ours(source, graph, Builder(options).session())
    except Exception:
        return None
    verdict = worst(check(out, eager, reference))
    if verdict.passed:
        return None
    error = f"a relative error of {verdict.error:.1e}, the limit is {verdict.limit:.1e}"
    return f"inaccurate: {verdict.reason or error}"


# --- the file


def file_text(smallest: FX, given: Inputs, why: str, options: Options, fails: Fails) -> str:
    """The text of a file: the module, its inputs and the call.

    Inputs are random numbers if the program fails on these too, else the recorded ones.
    """
    random = [input_text(x) for x in given]
    torch.manual_seed(0)
    if not fails(smallest, [eval(text, {"torch": torch, **NUMBERS}) for text in random]):
        random = [exact_text(x) for x in given]
    plain = Options()
    chosen = {f.name: getattr(options, f.name) for f in fields(Options) if f.compare}
    chosen = {name: value for name, value in chosen.items() if value != getattr(plain, name)}
    named = "".join(f", {name}={value!r}" for name, value in chosen.items())
    grad = any(isinstance(x, torch.Tensor) and x.requires_grad for x in given)
    return FILE.format(
        why=why.replace("\\", "\\\\").replace('"""', "'''"),
        module=NNModuleToString.convert(smallest).strip(),
        inputs="".join(f"    {text},\n" for text in random),
        grad=grad,
        options=named,
        backward=BACKWARD if grad else "",
    )


NUMBERS = {"inf": math.inf, "nan": math.nan}
BACKWARD = "    sum(t.abs().sum() for t in results if t.requires_grad).backward()\n"
FILE = '''"""{why}

Made by `weft minify`. `weft run FILE:Repro` compares its numbers with float64.
"""

import os

os.environ["WEFT_DEBUG"] = "1"  # what weft fails on is an error, and does not run in eager

from math import inf, nan

import torch
from torch import device, tensor

import weft

{module}

torch.manual_seed(0)
example_inputs = (
{inputs})

if __name__ == "__main__":
    torch.set_grad_enabled({grad})
    results = weft.compile(Repro(){options})(*example_inputs)
{backward}    print(results)
'''


def input_text(value: Any) -> str:
    """Python text for random numbers with the shape, strides, dtype and range of an input."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    shape, dtype = tuple(value.shape), value.dtype
    if dtype.is_floating_point or dtype.is_complex:
        made = f"torch.randn({shape}, dtype={dtype})"
        if value.itemsize == 1:  # torch.randn cannot make 8-bit floats
            made = f"torch.randn({shape}).to({dtype})"
    elif not value.numel():
        made = f"torch.empty({shape}, dtype={dtype})"
    else:
        least, most = (int(x) for x in value.to(torch.int64).aminmax())
        made = f"torch.randint({least}, {most + 1}, {shape}, dtype=torch.int64).to({dtype})"
    return placed(value, made)


def exact_text(value: Any) -> str:
    """Python text for the numbers of a recorded input."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    held = value.detach()
    numbers = (held.float() if value.is_floating_point() else held).tolist()
    return placed(value, f"torch.tensor({numbers}, dtype={value.dtype})")


def placed(value: torch.Tensor, made: str) -> str:
    """The Python text `made`, extended to the strides and requires_grad of `value`."""
    if not value.is_contiguous():
        shape, strides = tuple(value.shape), value.stride()
        made = f"torch.empty_strided({shape}, {strides}, dtype={value.dtype}).copy_({made})"
    return f"{made}.requires_grad_()" if value.requires_grad else made
