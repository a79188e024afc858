"""Replaces the Linears of a module by layers of few bits, and reports what was replaced.

model = weft.quantize(model, "int4")
print(model.lowbit_report)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from weft.core.errors import choice
from weft.lowbit.modules import LowBit, LowBitEmbedding, LowBitLinear
from weft.lowbit.storage import Fp8, Int4, Int8, LowBitError, Rounded, Storage

Kind = Literal["int8", "int4", "fp8"]
KINDS: dict[str, type[Rounded]] = {"int8": Int8, "int4": Int4, "fp8": Fp8}
SKIP = ("lm_head",)


@dataclass
class Report:
    """What a module of few bits stores, and which layers it left as they were, with the reasons.

    `stored` are bytes by dtype, of all parameters and buffers. `bytes_per_token` is what one token
    reads of them: all, but of a table of embeddings that is no Linear's one row.
    """

    layers: list[str] = field(default_factory=list[str])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    stored: Counter[str] = field(default_factory=Counter[str])
    bytes_per_token: int = 0

    def __str__(self) -> str:
        lines = [f"{len(self.layers)} layers of few bits"]
        lines += [f"{self.bytes_per_token:,} bytes of weights for each token"]
        lines += [
            f"stored: {size:,} bytes of {dtype}" for dtype, size in sorted(self.stored.items())
        ]
        return "\n".join(lines + [f"left {name}: {why}" for name, why in self.skipped.items()])


def quantize(
    module: nn.Module,
    kind: Kind,
    group: int | Literal["default"] | None = "default",
    activations: Literal["int8"] | None = None,
    skip: Sequence[str] = SKIP,
    asymmetric: bool = False,
) -> nn.Module:
    """Rounds the weights of a module's Linears to int8, int4 or fp8 (e4m3); returns the module.

    The Linears are replaced in place, by layers in plain torch (`weft.lowbit.modules`), and their
    float weights dropped; a module that is itself a Linear is not changed. An nn.Embedding that
    shares a Linear's weight shares its codes. `group` elements along K have one scale: 32 for int4
    by default; for int8 and fp8 one a row, None. K is padded with zeros to whole groups. int4 may
    be `asymmetric`, with a zero point for each group. With activations="int8", inputs are rounded
    to int8 too, by rows, and sums are exact; by default inputs are never rounded. A name in `skip`
    leaves the modules of that name, and all in them. `module.lowbit_report` says what was done.

    Rounding is to nearest; a scale is the least that no code of its group overflows. LowBitError
    if a weight is not finite, or options do not go together; the module is then as it was.
    """
    columns = check_options(kind, group, activations, asymmetric)
    found = KINDS[kind]

    def make(weight: nn.Parameter) -> Storage:
        exact = weight.detach()
        return Int4.asymmetric(exact, columns) if asymmetric else found.of(exact, columns)

    return replace(module, make, activations, skip)


def check_options(
    kind: str, group: int | str | None, activations: str | None, asymmetric: bool
) -> int | None:
    """The elements of a group, None for a row; LowBitError if options do not go together."""
    choice("kind of weight", kind, KINDS)
    choice("kind of activations", activations or "floats", ("floats", "int8"))
    if isinstance(group, str):
        choice("group", group, ("default",))
        group = 32 if kind == "int4" else None
    if group is not None and (group < 1 or (kind == "int4" and group % 2)):
        even = "an even number" if kind == "int4" else "a number"
        raise LowBitError(
            f"a group of {kind} is {even} of elements, or None for a row, not {group}"
        )
    if activations is not None and not KINDS[kind].integers:
        raise LowBitError(f'activations="int8" goes with int8 and int4 weights, not with {kind}')
    if asymmetric and kind != "int4":
        raise LowBitError(f"asymmetric goes with int4 weights, not with {kind}")
    return group


def replace(
    module: nn.Module,
    make: Callable[[nn.Parameter], Storage],
    activations: str | None,
    skip: Sequence[str],
) -> nn.Module:
    """Replaces each Linear, and each Embedding that shares its weight, by a layer over `make`."""
    report = Report()
    owners = owners_of(module)
    chosen = {key: own for key, own in owners.items() if planned(own, skip, report)}
    for own in chosen.values():
        check_finite(own)
    for own in chosen.values():
        storage = make(own[0][1].weight)
        made: dict[int, LowBit] = {}  # a module may stand at several places
        for name, layer in own:
            if id(layer) not in made:
                made[id(layer)] = layer_over(storage, layer, activations)
            report.layers.append(name)
            if not name:
                module = made[id(layer)]
                continue
            parent, _, last = name.rpartition(".")
            setattr(module.get_submodule(parent), last, made[id(layer)])
    report.bytes_per_token, report.stored = counted(module)
    paths = [path for path, _ in module.named_modules()]
    missing = [name for name in skip if name not in SKIP and not any(named(p, name) for p in paths)]
    report.skipped |= dict.fromkeys(missing, "no module has this name, which skip names")
    vars(module)["lowbit_report"] = report
    return module


def owners_of(module: nn.Module) -> dict[int, list[tuple[str, Any]]]:
    """The modules that hold each weight of a Linear or Embedding, with their names."""
    found: dict[int, list[tuple[str, Any]]] = {}
    weights: set[int] = set()
    for name, layer in module.named_modules(remove_duplicate=False):
        for key, parameter in layer.named_parameters(recurse=False, remove_duplicate=False):
            found.setdefault(id(parameter), []).append((name, layer))
            if key == "weight" and isinstance(layer, nn.Linear | nn.Embedding):
                weights.add(id(parameter))
    return {key: own for key, own in found.items() if key in weights}


def planned(own: list[tuple[str, Any]], skip: Sequence[str], report: Report) -> bool:
    """Whether the owners of a weight are replaced; if not, the report has the reasons."""
    if not any(isinstance(layer, nn.Linear) for _, layer in own):
        report.skipped |= {name: "an embedding whose weight no Linear shares" for name, _ in own}
        return False
    reasons = {name: why for name, layer in own if (why := reason(name, layer, skip))}
    first = next(iter(reasons), "")
    for name, _ in own if reasons else ():
        report.skipped[name] = reasons.get(name) or f"shares its weight with {first}, which is left"
    return not reasons


def reason(name: str, layer: nn.Module, skip: Sequence[str]) -> str | None:
    """Why a layer is left as it is; None if it can be replaced."""
    if any(named(name, left) for left in skip):
        return "skip names it"
    if not isinstance(layer, nn.Linear | nn.Embedding):
        return f"a {type(layer).__name__}, which holds the weight itself"
    if type(layer).forward not in (nn.Linear.forward, nn.Embedding.forward):
        return f"a {type(layer).__name__}, with a forward of its own"
    own = vars(layer)
    if "forward" in own or own["_forward_hooks"] or own["_forward_pre_hooks"]:
        return "it has hooks"
    if isinstance(layer, nn.Embedding) and layer.max_norm is not None:
        return "max_norm changes its weight"
    weight = layer.weight
    if (
        type(weight) is not nn.Parameter
        or not weight.is_floating_point()
        or weight.element_size() < 2
    ):
        return "its weight is not of plain floats"
    return "its weight has no elements" if weight.numel() == 0 else None


def named(path: str, name: str) -> bool:
    """Whether a module's path has these names in a row: `a.lm_head.b` has `lm_head`."""
    return f".{name}." in f".{path}."


def check_finite(own: list[tuple[str, Any]]) -> None:
    name = next(name for name, layer in own if isinstance(layer, nn.Linear))
    weight = own[0][1].weight
    path = f"{name}.weight" if name else "weight"
    if weight.is_meta:
        raise LowBitError(f"{path} is on the meta device, so it has no values to round")
    if not bool(torch.isfinite(weight.float()).all()):
        raise LowBitError(f"{path} has elements that are not finite in f32")


def layer_over(storage: Storage, layer: nn.Module, activations: str | None) -> LowBit:
    """The layer of few bits for a Linear or Embedding; in the same mode, with the same bias."""
    if isinstance(layer, nn.Embedding):
        return LowBitEmbedding(storage, layer.weight.dtype).train(layer.training)
    assert isinstance(layer, nn.Linear)
    bias: Any = layer.bias
    made = LowBitLinear(storage, bias, layer.weight.dtype, activations)
    return made.train(layer.training)


def counted(module: nn.Module) -> tuple[int, Counter[str]]:
    """Bytes that one token reads of a module's weights, and bytes stored, by dtype."""
    tables = [m for m in module.modules() if isinstance(m, nn.Embedding | LowBitEmbedding)]
    linears = [m for m in module.modules() if not isinstance(m, nn.Embedding | LowBitEmbedding)]
    whole = {id(x) for m in linears if not isinstance(m, Storage) for x in held(m)}
    stored: Counter[str] = Counter()
    read = 0
    seen: set[int] = set()
    for x in (x for m in (*linears, *tables) for x in held(m)):
        if id(x) in seen:
            continue
        seen.add(id(x))
        stored[str(x.dtype).removeprefix("torch.")] += x.nbytes
        read += x.nbytes if id(x) in whole else x.nbytes // max(len(x), 1)
    return read, stored


def held(module: nn.Module) -> Iterator[Tensor]:
    """The tensors of a layer: its own, and those of its storage."""
    yield from module.parameters(recurse=isinstance(module, LowBit))
    yield from module.buffers(recurse=isinstance(module, LowBit))
