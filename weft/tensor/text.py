"""Text of the tensor level: forms of the two ops with index terms; others have the generic form.

v0 = view{[16,64] -> (i1, i0)}(x): f32[16,64]
v1 = view{[18] -> (i0 - 1) where i0 >= 1 and i0 < 17 else 0.0}(y): f32[18]
v2 = index{[4] -> i0 * 2}: i64[4]
"""

from weft.core.node import Node, op_of
from weft.core.text.cursor import Cursor, show_number
from weft.core.text.graph import GraphScope, read_graph, show_graph
from weft.core.text.level import Forms, Level, Ref, make_node, show_arguments
from weft.scalar.ops import Axis
from weft.scalar.text.terms import SIZES, NameReader, show_term
from weft.tensor.ops import Index, Shape, View, positions


def _show_shape(shape: Shape) -> str:
    return f"[{','.join(map(str, shape))}]"


def _show_view(node: Node, ref: Ref) -> str:
    view = op_of(node, View)
    index = ", ".join(map(show_term, view.index))
    text = f"view{{{_show_shape(view.shape)} -> ({index})"
    if view.valid is not None:
        text += f" where {show_term(view.valid)}"
    if view.valid is not None or repr(view.fill) != "0":
        text += f" else {show_number(view.fill)}"
    return text + "}" + show_arguments(node.args, ref)


def _show_index(node: Node, ref: Ref) -> str:
    index = op_of(node, Index)
    return f"index{{{_show_shape(index.shape)} -> {show_term(index.term)}}}"


def _read_map(cursor: Cursor) -> tuple[Shape, NameReader]:
    """Read the op's name and `{[16,64] ->`; return the shape and a reader of its terms.

    These are over the coordinates i0, i1, ... of the output.
    """
    cursor.name()
    cursor.expect("{")
    shape = cursor.extents()
    cursor.expect("->")
    places = {op_of(n, Axis).label: n for n in positions(len(shape))}
    return shape, NameReader({**places, **SIZES.get({})}, "undefined name")


def _read_view(cursor: Cursor, scope: GraphScope) -> Node:
    shape, terms = _read_map(cursor)
    index = cursor.listed(lambda: terms.index_term(cursor), "()")
    valid = terms.condition(cursor) if cursor.accept("where") else None
    fill = cursor.literal()[0] if cursor.accept("else") else 0
    cursor.expect("}")
    return make_node(cursor, View(shape, index, valid, fill), *scope.arguments(cursor))


def _read_index(cursor: Cursor, scope: GraphScope) -> Node:
    shape, terms = _read_map(cursor)
    term = terms.expression(cursor)
    cursor.expect("}")
    return make_node(cursor, Index(shape, term), *scope.arguments(cursor))


FORMS = Forms(
    show={"view": _show_view, "index": _show_index},
    read={"view": _read_view, "index": _read_index},
)
TENSOR = Level("tensor", ("tensor",), show_graph, read_graph, forms=FORMS)
