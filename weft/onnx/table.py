"""The table of operators: one row for each, which is a function of tensors that calls torch.

@op("Elu")
def elu(x, *, alpha=1.0): return torch.where(x < 0, alpha * torch.expm1(x), x)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch

from weft.onnx.types import as_numbers, as_tensor, is_numbers

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Row:
    """An operator from an opset on.

    Inputs are positional, attributes are keywords, optional ones with ONNX's defaults. A function
    may also take what the loader knows: `outputs` (how many are used), `types` (the element type
    of each input and output, None if unknown). `wants` are inputs taken as Python numbers;
    `either` as numbers or as tensors; `literals` those, and attributes, that are written as numbers
    where the file has them as constants; `buffers` those that are no parameters. `numbers` computes
    the operator where all inputs are Python numbers; with `sizes` the function itself gives such
    numbers, with `raw` it takes values of any kind.
    """

    name: str
    domain: str
    since: int
    function: Callable[..., Any]
    wants: Collection[int]
    literals: Collection[int | str]
    either: Collection[int]
    buffers: Collection[int]
    numbers: Callable[..., Any] | None
    sizes: bool
    raw: bool

    @cached_property
    def keywords(self) -> set[str]:
        """Names that the function takes by keyword; none for a builtin one of torch's."""
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except ValueError:
            return set()
        return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}

    @cached_property
    def call(self) -> Callable[..., Any]:
        """The function with its inputs made tensors or numbers, whichever it takes."""
        function, numbers, wants, either = self.function, self.numbers, self.wants, self.either
        if self.raw:
            return function

        def call(*inputs: Any, **attributes: Any) -> Any:
            if numbers is not None and all(is_numbers(x) for x in inputs):
                found = numbers(*inputs, **attributes)
                if found is not NotImplemented:
                    return found
            device = device_of(inputs)
            taken = [
                x if i in either else as_numbers(x) if i in wants else as_tensor(x, device)
                for i, x in enumerate(inputs)
            ]
            return function(*taken, **attributes)

        return call


def device_of(inputs: tuple[Any, ...]) -> torch.device | None:
    """Where an operator runs: where a tensor is, on the CPU only if all are."""
    devices = [x.device for x in inputs if isinstance(x, torch.Tensor)]
    others = [device for device in devices if device.type != "cpu"]
    return others[0] if others else devices[0] if devices else None


ROWS: dict[tuple[str, str], list[Row]] = {}


def op(
    *names: str,
    domain: str = "",
    since: int = 1,
    wants: Collection[int] = (),
    literals: Collection[int | str] = (),
    either: Collection[int] = (),
    buffers: Collection[int] = (),
    numbers: Callable[..., Any] | None = None,
    sizes: bool = False,
    raw: bool = False,
) -> Callable[[F], F]:
    """Enters a function as the row of an operator, or of several that it computes alike."""

    def enter(function: F) -> F:
        for name in names:
            row = Row(
                name, domain, since, function, wants, literals, either, buffers, numbers, sizes, raw
            )
            ROWS.setdefault((domain, name), []).append(row)
        return function

    return enter


def find(domain: str, name: str, opset: int) -> Row | None:
    """The row of an operator at an opset: the latest that is not newer."""
    rows = [row for row in ROWS.get((domain, name), ()) if row.since <= opset]
    return max(rows, key=lambda row: row.since, default=None)
