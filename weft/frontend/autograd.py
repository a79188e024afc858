"""FX graphs that want gradients: AOTAutograd's forward and backward, each compiled.

backend = graph_backend(session)      # what torch.compile(backend=...) takes
call = backend(fx_graph, examples)    # call(*inputs) has a grad_fn where one is wanted
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from weft.core.collector import uncollected
from weft.core.errors import CaptureError, WeftError, refuse
from weft.core.node import bottom_up
from weft.frontend.capture import Name
from weft.frontend.composites import in_training
from weft.frontend.graph import Captured, Runner
from weft.frontend.keep import partition
from weft.frontend.lists import Lists, handed_over, items, without_lists
from weft.frontend.randoms import Draws
from weft.frontend.scans import own_scan_gradients
from weft.frontend.schema import core_decompositions
from weft.frontend.specialise import FX, GraphProgram, Session
from weft.frontend.stored_gradients import Halves, restored


def graph_backend(session: Session) -> Callable[..., Any]:
    """A Dynamo backend: a function of an FX graph and example inputs, compiled when it returns."""

    @uncollected()
    def backend(graph: FX, examples: Sequence[Any], names: Sequence[Name] | None = None) -> Any:
        if any(isinstance(x, Lists) for x in examples):
            return _of_lists(graph, examples)
        program = GraphProgram(graph, session, names, partial(differentiable, session))
        try:
            program.prepare(examples)
        except WeftError as error:
            return partial(refuse, error)
        return program

    def _of_lists(graph: FX, examples: Sequence[Any]) -> Any:
        try:
            program = backend(without_lists(graph, examples), items(examples))
        except CaptureError as error:
            session.refuse(error)
            return graph.forward
        emptied = handed_over(graph)

        def call(*inputs: Any) -> Any:
            given = items(inputs)
            for i in emptied:
                inputs[i].clear()
            return program(*given)

        return call

    return backend


def differentiable(session: Session, graph: FX, inputs: Sequence[Any]) -> Callable[..., Any]:
    """The graph as AOTAutograd makes it, with both of its graphs compiled by the session."""

    def changing(captured: Captured) -> Runner:  # in training, parameters do with every call
        inputs = [replace(p, fixed=False) for p in captured.placeholders]
        return session.build(replace(captured, placeholders=inputs))

    inner = replace(session, build=changing)  # which shares the lists of programs and reasons
    fused, store = session.fused_random, session.store
    graph, extra = (graph, 0) if fused else keep_draws(graph)
    key = store and store.key(graph, inputs, None, "gradients", fused, session.strict)
    found = store.load(key) if store is not None else None
    if found is not None:
        call = restored(found, inner)
    else:
        call = _through_autograd(
            inner, graph, inputs, Halves(store, key) if store and key else None
        )
    return call if not extra else lambda *given: call(*given)[:-extra]


def _through_autograd(
    session: Session, graph: FX, inputs: Sequence[Any], halves: Halves | None
) -> Callable[..., Any]:
    """What AOTAutograd makes of the graph; both graphs that it gives are added to the halves."""

    def compiler(part: FX, examples: Sequence[Any]) -> Any:
        program = GraphProgram(part, session)
        program.prepare(examples)
        if halves is not None:
            halves.add(program)
        return make_boxed_func(program)

    randoms = Draws(get_proxy_mode).table() if session.fused_random else {}
    through = aot_autograd(  # the compiler is that of backward graphs as well
        fw_compiler=compiler,
        partition_fn=partition,
        decompositions={**core_decompositions(), **randoms},
    )
    own = in_training(inputs, session.strict), own_scan_gradients()
    with own[0], own[1], halves.noted() if halves else nullcontext():
        return through(graph, inputs)


# --- numbers that are drawn and never read --------------------------------------------------------


def keep_draws(graph: FX) -> tuple[FX, int]:
    """A graph whose last outputs are the random numbers that no output needs, and their count.

    Such numbers still move torch's generator. AOTAutograd drops what no output needs, so a seeded
    program would draw other numbers than in eager.
    """
    read: dict[torch.fx.Node, None] = {}
    bottom_up(graph.graph.output_node(), read, lambda _: None, lambda n: n.all_input_nodes)
    unread = (n for n in graph.graph.nodes if n not in read)
    drawn = {n for n in unread if n.op.startswith("call_") and _draws(graph, n)}
    if not drawn:
        return graph, 0
    copy = FX(graph, torch.fx.Graph())
    twins: dict[torch.fx.Node, torch.fx.Node] = {}
    copy.graph.graph_copy(graph.graph, twins)  # all but the output
    returned: Any = graph.graph.output_node().args[0]
    values: Any = map_arg(returned, twins.__getitem__)
    copy.graph.output((*values, *(twins[n] for n in graph.graph.nodes if n in drawn)))
    copy.recompile()
    return copy, len(drawn)


class _Watch(TorchDispatchMode):
    """Sees whether an operator that draws random numbers was called."""

    drawn = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.drawn |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def _draws(graph: FX, node: torch.fx.Node) -> bool:
    """Whether the call draws random numbers and gives them as one tensor: run without values."""
    if not isinstance(node.meta.get("example_value"), torch.Tensor):
        return False
    copies = FakeTensorMode()

    def copy(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)

    values = {n: n.meta.get("example_value") for n in node.all_input_nodes}
    with _disable_current_modes(), copies, torch.no_grad():
        values = tree_map_only(torch.Tensor, copy, values)
        both: Any = map_arg((node.args, node.kwargs), values.__getitem__)
        with _Watch() as watch:
            getattr(torch.fx.Interpreter(graph), node.op)(node.target, *both)
    return watch.drawn
