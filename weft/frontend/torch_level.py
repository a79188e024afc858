"""The torch level: ATen calls as interned nodes. interpret/calls.py runs them.

relu = make(Aten("aten.relu.default", arguments, (type_of(out),)), x)       # relu: f32[16,16]
verify(graph)                                # torch itself says what each call gives
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from weft.core.arguments import Arguments
from weft.core.errors import UnsupportedOpError, VerifyError
from weft.core.node import Graph, Node, Nodes, op
from weft.core.types import DTYPES, FOREIGN, DType, TensorType, f32, row_major
from weft.frontend.extents import extent
from weft.library.calls import TORCH_DTYPES, encode, operator, torch_object
from weft.scalar.resize import at_some_sizes
from weft.tensor.ops import LibraryCall

DTYPE_OF: dict[torch.dtype, DType] = {
    **{t: DTYPES[name] for name, t in TORCH_DTYPES.items()},
    **{getattr(torch, name): dtype for name, dtype in FOREIGN.items()},
}
TORCH_DTYPE = {d: t for t, d in DTYPE_OF.items()}


def dtype_of(dtype: torch.dtype) -> DType:
    found = DTYPE_OF.get(dtype)
    if found is None:
        raise UnsupportedOpError(f"weft has no element type for {dtype}")
    return found


def type_of(tensor: torch.Tensor) -> TensorType:
    """Strides are kept where they are not row-major (those of axes of length 1 don't matter)."""
    shape, strides = (tuple(map(extent, sizes)) for sizes in (tensor.shape, tensor.stride()))
    told = zip(shape, strides, row_major(shape), strict=True)
    plain = 0 in shape or all(n == 1 or s == t for n, s, t in told)
    return TensorType(dtype_of(tensor.dtype), shape, None if plain else strides)


NOTHING = TensorType(f32, (0,))  # stands for a result the op was asked not to compute


@op("aten")
class Aten(LibraryCall):
    """One ATen call of the program.

    a = aten{aten.add.Tensor, {"args":[{"tensor":0},1],"kwargs":{}}}(x)
    A random call has one operand more than its arguments name: the random call before it. So
    numbers are drawn in the program's order, and no two draws are the same node.
    """


def encode_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Arguments, Nodes]:
    """The arguments of a call, and its operands: the nodes that {"tensor": i} stand for."""
    nodes: dict[Node, int] = {}
    sizes: dict[Any, int] = {}

    def place(value: Any) -> dict[str, Any] | None:
        if isinstance(value, Node):
            return {"tensor": nodes.setdefault(value, len(nodes))}
        if not isinstance(value, torch.SymInt):
            return None
        return {"size": sizes.setdefault(extent(value), len(sizes))}

    encoded = [encode(a, place) for a in args]
    keywords = {k: encode(a, place) for k, a in kwargs.items()}
    return Arguments.of(encoded, keywords, tuple(sizes)), tuple(nodes)


# --- checking -----------------------------------------------------------------------------------


def verify(graph: Graph) -> None:
    """Every call gives what it declares: torch itself runs it on tensors without values.

    A program for any size is verified at its hints, and at others as far as torch takes those.
    """
    first, *others = at_some_sizes(graph)
    _verify(first)
    for at_sizes in others:
        with suppress(Refused):
            _verify(at_sizes)


class Refused(VerifyError):
    """A call whose arguments torch does not take."""


def _verify(graph: Graph) -> None:
    for node in graph.nodes():
        if not isinstance(node.op, Aten):
            continue
        name, target = graph.names.get(node, "a call"), node.op.target
        try:
            results = tree_leaves(_call_meta(node.op, [a.type for a in node.args]))
        except NotImplementedError:
            continue  # an op that only runs on values
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            reason = str(error).strip().split("\n")[0]
            where = graph.origin.get(node)
            raise Refused(f"{name}: {target} refuses its arguments: {reason}", where) from None
        for made, told in zip(results, node.op.results, strict=False):
            if not isinstance(made, torch.Tensor) or told == NOTHING:
                continue
            found = TensorType(dtype_of(made.dtype), tuple(made.shape))
            plain = TensorType(told.dtype, told.shape)
            if found != plain:
                sentence = f"{name} is declared {plain}, but {target} gives {found}"
                raise VerifyError(sentence, graph.origin.get(node))


def _call_meta(aten: Aten, types: Sequence[TensorType]) -> Any:
    def leaf(tag: str, value: Any) -> Any:
        return torch.device("meta") if tag == "device" else torch_object(tag, value)

    with torch.device("meta"):
        given = [torch.empty_strided(t.shape, t.layout, dtype=TORCH_DTYPE[t.dtype]) for t in types]
        args, kwargs = aten.arguments.bind(given, leaf)
        return operator(aten.target)(*args, **kwargs)
