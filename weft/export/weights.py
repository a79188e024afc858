"""The weights of an exported model, as a safetensors file whose tensors lie at their own multiples.

weights, places = merged([call.weights ...])    # one of each, and for each call where its own are
write(weights, path)
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from weft.core.errors import WeftError

# The names that safetensors has for dtypes.
DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Weight:
    """A tensor by the name that it has in the file; `memory` is all from its first element on."""

    name: str
    tensor: torch.Tensor

    @property
    def memory(self) -> torch.Tensor:
        """Contiguous: itself, or all that its strides span, in one dimension."""
        t = self.tensor
        if t.is_contiguous():
            return t
        span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
        return t.as_strided((span,), (1,))

    @property
    def bytes(self) -> int:
        return self.memory.numel() * self.tensor.element_size()

    def row(self, text: Callable[[str], str]) -> str:
        """Its row of weft_weights: the name as JSON writes it."""
        name = text(json.dumps(self.name, ensure_ascii=False)[1:-1])
        dtype, shape = text(DTYPES[self.tensor.dtype]), text(json.dumps([*self.memory.shape]))
        return f"{{{name}, {dtype}, {shape}, {self.bytes}, {self.tensor.element_size()}}}"


def merged(
    calls: Sequence[Sequence[tuple[str, torch.Tensor]]],
) -> tuple[list[Weight], list[list[int]]]:
    """All weights, those of several calls once, and for each call the numbers of its own."""
    weights: list[Weight] = []
    known: dict[tuple[object, ...], int] = {}
    names: set[str] = set()
    places: list[list[int]] = []
    for own in calls:
        places.append([])
        for name, t in own:
            if t.dtype not in DTYPES or t.device.type != "cpu":
                raise WeftError(f"weight {name} of {t.dtype} on {t.device} cannot be exported")
            key = (t.data_ptr(), *t.shape, None, *t.stride(), t.dtype)
            if key not in known or not t.numel():
                free = next(
                    n
                    for n in (name, *(f"{name}.{i}" for i in range(1, len(names) + 2)))
                    if n not in names
                )
                names.add(free)
                known[key] = len(weights)
                weights.append(Weight(free, t))
            places[-1].append(known[key])
    return weights, places


def write(weights: Sequence[Weight], path: Path) -> None:
    """The largest items first, so that each lies at a multiple of its own."""
    order = sorted(weights, key=lambda w: -w.tensor.element_size())
    header: dict[str, object] = {}
    at = 0
    for w in order:
        shape, ends = [*w.memory.shape], [at, at + w.bytes]
        header[w.name] = {"dtype": DTYPES[w.tensor.dtype], "shape": shape, "data_offsets": ends}
        at += w.bytes
    told = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    told += b" " * (-(8 + len(told)) % 64)
    with path.open("wb") as file:
        file.write(len(told).to_bytes(8, "little") + told)
        for w in order:
            file.write(w.memory.reshape(-1).view(torch.uint8).numpy().data)
