"""A row of the ATen table: the function that writes the op in primitives, and its operands' dtypes.

ROWS = rows("promoted", {"silu": lambda x: x * sigmoid(x), "mul.Tensor,Scalar": ...})
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

# wrapped    numbers too: cast to the result's dtype (to the operands' one, of a predicate), then to
#            that torch computes in, f32 for a 16-bit float
# promoted   likewise, but a number or a tensor of rank 0 after the first keeps its digits
# converted  cast to the result's dtype: nothing is computed
# widened    16-bit floats as f32, all else as it is
# stored     as they are
# strided    as they are; the first operand's element strides follow it as a second argument
Operands = Literal["wrapped", "promoted", "converted", "widened", "stored", "strided"]


@dataclass(frozen=True)
class Row:
    """`function` takes the op's arguments and gives its results, in any dtype, numbers allowed.

    All arguments that may stand by position do: defaults are those of ATen's schema.
    """

    function: Callable[..., Any]
    operands: Operands


class Decline(Exception):
    """Raised by a row for a call it does not write; the message is the reason."""


def require(condition: bool, otherwise: str) -> None:
    """Decline unless the condition holds."""
    if not condition:
        raise Decline(otherwise)


def rows(operands: Operands, table: Mapping[str, Callable[..., Any]]) -> dict[str, Row]:
    """Rows by full name. A key lists ops of one meaning, as `overloads` reads them."""
    each = ((name, function) for names, function in table.items() for name in overloads(names))
    return {name: Row(function, operands) for name, function in each}


def namesakes(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Rows by the name of their function, where that is ATen's: namesakes(cat) is {"cat": cat}."""
    return {function.__name__: function for function in functions}


def overloads(names: str) -> Iterator[str]:
    """silu mul.Tensor,Scalar: aten.silu.default, aten.mul.Tensor and aten.mul.Scalar."""
    for op, _, forms in (name.partition(".") for name in names.split()):
        yield from (f"aten.{op}.{form or 'default'}" for form in forms.split(","))


def axis_of(axis: int, rank: int) -> int:
    """A possibly negative axis; a rank-0 tensor counts as having one."""
    return axis % max(rank, 1)


def on_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """The row of function(x, axis, ...), where ATen may count its `dim` from the end."""

    @wraps(function)
    def row(x: Any, dim: int = 0, *rest: Any, **named: Any) -> Any:
        return function(x, axis_of(dim, x.rank), *rest, **named)

    return row


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The axes a reduction names: none or an empty list mean all."""
    if axes is None or (not isinstance(axes, int) and len(axes) == 0) or rank == 0:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int) else axes
    return tuple(sorted({axis_of(a, rank) for a in given}))


def per_axis(value: int | Sequence[int], n: int) -> tuple[int, ...]:
    """A convolution's parameter for each of n axes: one number means the same for all."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * n if len(values) == 1 else values
