"""The torch level: ATen calls as interned nodes, and as text that reads as in PyTorch.

relu = make(Aten("aten.relu.default", arguments, (type_of(out),)), x)       # relu: f32[16,16]
verify(graph)                                # torch itself says what each call gives
interpret/calls.py runs them.

v1 = aten.pow.Tensor_Scalar(x, 2): f32[1,32,2048]
v2 = aten.sum.dim_IntList(v1, [-1], true, dtype=torch.float32): f32[1,32,1]
A call that this cannot say exactly keeps the generic form, aten{"aten.add.Tensor", ...}(x, y).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import torch
from torch.utils._pytree import tree_leaves

from weft.core.arguments import Arguments, with_operands
from weft.core.errors import UnsupportedOpError, VerifyError
from weft.core.node import Graph, Node, Nodes, op, op_of
from weft.core.text.cursor import Cursor, show_number, show_string
from weft.core.text.graph import GraphScope, read_graph, show_graph
from weft.core.text.level import Forms, Level, Ref, make_node, show_op
from weft.core.types import DTYPES, FOREIGN, DType, TensorType, TupleType, f32, row_major
from weft.frontend.extents import extent
from weft.library.calls import TAGS, TORCH_DTYPES, encode, operator, torch_object
from weft.scalar.resize import at_some_sizes
from weft.tensor.ops import LibraryCall
from weft.tensor.recurrence import Recurrence

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
        if isinstance(node.op, Recurrence):
            _verify(node.op.body)
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


# --- text -----------------------------------------------------------------------------------------


def _show_aten(node: Node, ref: Ref) -> str:
    aten = op_of(node, Aten)
    args, kwargs = aten.arguments.args, aten.arguments.kwargs
    given = [*args, *kwargs.values()]
    if not _is_plain(given) or "." not in aten.target:
        return show_op(node, ref)
    used: dict[int, None] = defaultdict(lambda: None)  # operands, in the order of the text
    with_operands(given, used, lambda tag, value: None)
    last = node.args[len(used) :]  # of a random call, the one before it
    again = [*used] == [*range(len(used))] and Arguments.of(args, kwargs) == aten.arguments
    if not (again and len(last) <= 1 and len(set(node.args)) == len(node.args)):
        return show_op(node, ref)
    names = [ref(a) for a in node.args]
    items = [_show(a, names) for a in args]
    items += [f"{k}={_show(a, names)}" for k, a in kwargs.items()]
    after = f"{{after={names[-1]}}}" if last else ""
    return f"{aten.target}{after}({', '.join(items)})"


def _is_plain(value: Any) -> bool:
    """Whether an argument can be written as in Python: no long number, no dictionary."""
    if isinstance(value, dict):
        return len(cast(dict[str, Any], value)) == 1
    if isinstance(value, list):
        return all(map(_is_plain, cast(list[Any], value)))
    return not isinstance(value, int) or abs(value) < 2**63


def _show(value: Any, names: list[str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_show(v, names) for v in cast(list[Any], value))}]"
    if isinstance(value, bool | int | float):
        return show_number(value)
    if not isinstance(value, dict):
        return "none" if value is None else show_string(value)
    ((tag, inner),) = cast(dict[str, Any], value).items()
    match tag:
        case "tensor":
            return names[inner]
        case "float":
            return str(inner)
        case "complex":
            return f"complex({', '.join(map(show_number, inner))})"
        case "device":
            return f"device({show_string(inner)})"
        case _:
            return f"torch.{inner}"


class _Arguments:
    """Reads the arguments of a call back to JSON, and collects the tensors among them."""

    def __init__(self, scope: GraphScope) -> None:
        self.scope = scope
        self.nodes: dict[Node, int] = {}

    def value(self, cursor: Cursor) -> Any:
        if cursor.accept("["):
            return list(cursor.listed(lambda: self.value(cursor), "]"))
        if cursor.at_literal():
            return encode(cursor.literal()[0], lambda _: None)
        word = cursor.peek()
        if cursor.token()[0] == "string" and word[1:-1] not in self.scope.nodes:
            return cursor.string()
        if word in ("complex", "device") and cursor.peek(1) == "(":
            return self.tagged(cursor, cursor.name())
        if word == "none" and cursor.accept("none"):
            return None
        if word.startswith("torch.") and word not in self.scope.nodes:
            return self.constant(cursor, cursor.name().removeprefix("torch."))
        return {"tensor": self.nodes.setdefault(self.scope.operand(cursor), len(self.nodes))}

    def tagged(self, cursor: Cursor, tag: str) -> Any:
        read = cursor.string if tag == "device" else lambda: cursor.literal()[0]
        parts = cursor.listed(read, "()")
        if len(parts) != (1 if tag == "device" else 2):
            cursor.fail(f"{tag} of {len(parts)} values")
        return {tag: parts[0] if tag == "device" else list(parts)}

    def constant(self, cursor: Cursor, name: str) -> Any:
        found = getattr(torch, name, None)
        for tag, kind in TAGS.items():
            if isinstance(found, kind):
                return {tag: name}
        return cursor.fail(f"torch.{name} is no dtype, layout or memory format")


def _read_aten(cursor: Cursor, scope: GraphScope) -> Node:
    target = cursor.name()
    after: tuple[Node, ...] = ()
    if cursor.accept("{"):
        cursor.expect("after", "=")
        after = (scope.operand(cursor),)
        cursor.expect("}")
    reader = _Arguments(scope)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}

    def item() -> None:
        if cursor.token()[0] == "name" and cursor.peek(1) == "=":
            name = cursor.name()
            cursor.expect("=")
            kwargs[name] = reader.value(cursor)
        elif kwargs:
            cursor.fail("an argument without a name follows one with a name")
        else:
            args.append(reader.value(cursor))

    cursor.listed(item, "()")
    start = cursor.position  # the type is read again, as of any node
    if not cursor.accept(":"):
        cursor.fail(f"the result of {target} needs its type")
    type_, cursor.position = cursor.result_type(), start
    results = type_.parts if isinstance(type_, TupleType) else (type_,)
    arguments = Arguments.of(args, kwargs)
    return make_node(cursor, Aten(target, arguments, results), *reader.nodes, *after)


FORMS = Forms(show={Aten.name: _show_aten}, read={".": _read_aten})
ALSO = ("input", "part", "recurrence")  # of the tensor level
TORCH = Level("torch", ("frontend",), show_graph, read_graph, ALSO, FORMS)
