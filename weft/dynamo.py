"""torch.compile(model, backend="weft", options={"target": "auto", "fallback": "error"}).

The entry point torch_dynamo_backends names `weft_backend`; the graphs go where weft.compile's go.
Importing it switches on the guards that Dynamo leaves out by default, for every backend of the
process: that hooks are added, that functions get other defaults, that parameters are one tensor.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from weft.core.errors import WeftError, refuse
from weft.driver import graph_backend
from weft.frontend.python import guard_everything, names_of

guard_everything()


def weft_backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one graph that Dynamo found; `options` are the keywords of weft.compile."""
    try:
        backend = graph_backend(**(options or {}))
    except WeftError as error:
        return partial(refuse, error)
    return backend(graph, example_inputs, names_of(graph))
