"""torch.compile(model, backend="weft", options={"target": "auto", "fallback": "error"}).

The entry point torch_dynamo_backends names `weft_backend`; the graphs go where weft.compile's go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from weft.driver import graph_backend


def weft_backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one graph that Dynamo found; `options` are the keywords of weft.compile."""
    return graph_backend(**(options or {}))(graph, example_inputs)
