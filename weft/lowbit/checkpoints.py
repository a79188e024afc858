"""Linears of GPTQ, AWQ, NF4 and MXFP4 from a state dict, as layers over their codes and scales.

module = weft.lowbit.load_packed(module, safetensors.torch.load_file("m.safetensors"), "gptq")

Codes are put in the order of Int4 when they are loaded; none is rounded again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.core.errors import choice
from weft.lowbit.blocks import Table, mxfp4
from weft.lowbit.gguf import check_scales
from weft.lowbit.modules import LowBitLinear
from weft.lowbit.storage import Int4, Int8, LowBitError, Reordered, Storage, grouped, halved

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column that each half of a word is of, of 8
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


class Parts:
    """The tensors of one layer in a state dict; `used` are the names of those looked at."""

    def __init__(self, state: Mapping[str, Tensor], layer: str, form: str) -> None:
        self.state, self.prefix = state, f"{layer}." if layer else ""
        self.what = f"{layer or 'the layer'} ({form})"
        self.used: set[str] = set()

    def get(self, name: str) -> Tensor | None:
        self.used.add(self.prefix + name)
        return self.state.get(self.prefix + name)

    def __getitem__(self, name: str) -> Tensor:
        part = self.get(name)
        if part is None:
            raise self.error(f"has no {name}")
        return part

    def first(self, *names: str) -> Tensor:
        return self[next((n for n in names if self.prefix + n in self.state), names[0])]

    def error(self, what: str) -> LowBitError:
        return LowBitError(f"{self.what} {what}")

    def shaped(self, name: str, part: Tensor, *shape: int) -> Tensor:
        if part.shape != shape:
            raise self.error(f"has {name} of shape {[*part.shape]}, not {[*shape]}")
        return part


def words(packed: Tensor, width: int) -> Tensor:
    """i32[...] -> [..., 32 / width]: the numbers of `width` bits, the lowest first."""
    shifts = torch.arange(0, 32, width, device=packed.device)
    return packed[..., None] >> shifts & (1 << width) - 1


def int4(parts: Parts, q: Tensor, zero: Tensor, scale: Tensor, group: int) -> Storage:
    """Codes [N, K], zeros and scales [N, groups]; zeros that are all 8 are not stored."""
    groups = -(-q.shape[-1] // group)
    for name, part in (("zeros", zero), ("scales", scale)):
        parts.shaped(name, part, len(q), groups)
    kept = None if bool((zero == 8).all()) else zero.to(torch.uint8).contiguous()
    return Int4(q.shape[-1], codes=halved(grouped(q, group)), scale=scale.contiguous(), zero=kept)


def gptq(parts: Parts, n: int, k: int) -> Storage:
    """qweight i32[K / 8, N], qzeros i32[groups, N / 8], less 1, scales [groups, N], g_idx [K]."""
    packed, scale, g_idx = parts["qweight"], parts["scales"].T, parts.get("g_idx")
    width = 32 * len(packed) // k
    if width not in (4, 8):
        raise parts.error(f"has codes of {width} bits, not of 4 or 8")
    q = parts.shaped("codes", words(packed.T, width).flatten(-2), n, k)
    zero = (words(parts["qzeros"], width).flatten(-2) + 1 & (1 << width) - 1).T
    if g_idx is None:
        g_idx = torch.arange(k) // group_of(parts, k, scale.shape[-1])
    group = int((g_idx == 0).sum())
    order = g_idx.argsort(stable=True)
    if group < 1 or not torch.equal(g_idx[order].long(), torch.arange(k) // group):
        raise parts.error("has a g_idx whose groups are not of one size")
    in_order = torch.equal(order, torch.arange(k))
    q = q if in_order else q[:, order]
    if width == 8:
        if not bool((zero == 128).all()):
            raise parts.error("has codes of 8 bits with zeros other than 128")
        codes = F.pad(q - 128, (0, -k % group)).to(torch.int8)
        storage: Storage = Int8(k, codes=codes, scale=scale.contiguous())
    else:
        storage = int4(parts, q, zero, scale, group)
    return storage if in_order else Reordered(storage, order)


def group_of(parts: Parts, k: int, groups: int) -> int:
    if groups == 0 or k % groups:
        raise parts.error(
            f"has {groups} groups for {k} columns, and no g_idx that tells their size"
        )
    return k // groups


def awq(parts: Parts, n: int, k: int) -> Storage:
    """qweight i32[K, N / 8], qzeros i32[groups, N / 8], scales [groups, N]."""
    apart = torch.tensor(AWQ_ORDER).argsort()
    q, zero = (words(parts[key], 4)[..., apart].flatten(-2).T for key in ("qweight", "qzeros"))
    scale = parts["scales"].T
    q = parts.shaped("codes", q, n, k)
    return int4(parts, q, zero, scale, group_of(parts, k, scale.shape[-1]))


def nf4(parts: Parts, n: int, k: int) -> Storage:
    """bitsandbytes: two elements a byte, the first in the high half, a scale for each block.

    Scales that are bytes themselves are decoded here: they take 4 bytes then, not 1.
    """
    told: dict[str, Any] = json.loads(bytes(parts["weight.quant_state.bitsandbytes__nf4"].tolist()))
    block, scale, table = (
        int(told["blocksize"]),
        parts["weight.absmax"],
        parts.get("weight.quant_map"),
    )
    if k % block:
        raise parts.error(f"has rows of {k} elements, no whole blocks of {block}")
    if scale.dtype == torch.uint8:
        nested = parts["weight.nested_quant_map"][scale.long()]
        largest = parts["weight.nested_absmax"].repeat_interleave(int(told["nested_blocksize"]))
        scale = nested * largest[: len(nested)] + torch.tensor(told["nested_offset"])
    packed = parts.shaped("weight", parts["weight"].reshape(-1, 1), n * k // 2, 1)
    q = torch.cat((packed >> 4, packed & 15), -1).reshape(n, -1, block)
    scale = parts.shaped("absmax", scale.reshape(-1), n * k // block).reshape(n, -1)
    return Table(k, torch.tensor(NF4) if table is None else table, halved(q), scale.float())


def microscaled(parts: Parts, n: int, k: int) -> Storage:
    """OCP MXFP4: two elements a byte, the first in the low half, an E8M0 scale for each 32."""
    if k % 32:
        raise parts.error(f"has rows of {k} elements, no whole blocks of 32")
    packed = parts.first("weight_blocks", "weight_packed")
    packed = parts.shaped("codes", packed.reshape(len(packed), -1), n, k // 2)
    scale = parts.shaped("scales", parts.first("weight_scales", "weight_scale"), n, k // 32)
    q = torch.stack((packed & 15, packed >> 4), -1).reshape(n, -1, 32)
    return mxfp4(halved(q), scale.view(torch.uint8))


FORMS: dict[str, tuple[Callable[[Parts, int, int], Storage], tuple[str, ...]]] = {
    "gptq": (gptq, ("qweight",)),  # the names that tell a layer of the format
    "awq": (awq, ("qweight",)),
    "nf4": (nf4, ("weight.quant_state.bitsandbytes__nf4",)),
    "mxfp4": (microscaled, ("weight_blocks", "weight_packed")),
}


def load_packed(
    module: nn.Module,
    state: Mapping[str, Tensor],
    form: Literal["gptq", "awq", "nf4", "mxfp4"],
    activations: Literal["int8"] | None = None,
) -> nn.Module:
    """Fills a module from a state dict in which weights of Linears are packed; returns it.

    A Linear whose packed tensors the state dict has (GPTQ: `qweight`, `qzeros`, `scales`, `g_idx`
    in version 1, whose zeros are less 1; AWQ of its gemm version; NF4 of bitsandbytes, with nested
    scales or without; MXFP4: `weight_blocks`, `weight_scales`) becomes a layer over these; all
    other tensors take the place of the module's, which may be on the meta device. Inputs are
    rounded to int8 only where `activations` says so, and weights are integers. LowBitError if a
    tensor is missing, left over or does not fit; nothing is changed then.
    """
    read, marks = choice("packed format", form, FORMS) and FORMS[form]
    made: dict[str, LowBitLinear] = {}
    used: set[str] = set()
    for name, layer in module.named_modules():
        parts = Parts(state, name, form)
        if not isinstance(layer, nn.Linear) or not any(parts.prefix + m in state for m in marks):
            continue
        storage = read(parts, layer.out_features, layer.in_features)
        check_scales(storage, parts.what)
        bias: Any = parts.get("bias")
        bias = (
            None if bias is None else nn.Parameter(parts.shaped("bias", bias, layer.out_features))
        )
        rounds = activations if storage.integers else None
        made[name] = LowBitLinear(storage, bias, layer.weight.dtype, rounds).train(layer.training)
        used |= parts.used
    if not made:
        raise LowBitError(f"the state dict has no weights of {form} for a Linear of the module")
    rest = {key: part for key, part in state.items() if key not in used}
    replaced = {key for key in module.state_dict() if key.rpartition(".")[0] in made}
    share(module, rest)
    check_fits(module.state_dict(), rest, replaced)
    for name, layer in made.items():
        if not name:
            return layer
        module.set_submodule(name, layer)
    module.load_state_dict(rest, strict=False, assign=True)
    return module


def share(module: nn.Module, rest: dict[str, Tensor]) -> None:
    """Gives a parameter that the state dict leaves out what it has of the same one elsewhere."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for tied in names.values():
        held = next((name for name in tied if name in rest), None)
        if held is not None and len(tied) > 1:
            rest.update(dict.fromkeys(tied, nn.Parameter(rest[held], requires_grad=False)))


def check_fits(own: Mapping[str, Tensor], rest: Mapping[str, Tensor], replaced: set[str]) -> None:
    """LowBitError if what is not packed is not, tensor by tensor, what the module has left."""
    if missing := {*own} - {*rest} - replaced:
        raise LowBitError(f"the state dict has no {min(missing)}")
    if extra := {*rest} - ({*own} - replaced):
        raise LowBitError(f"the module has no place for {min(extra)} of the state dict")
    for key, part in rest.items():
        if part.shape != own[key].shape:
            shapes = f"{[*part.shape]}, not {[*own[key].shape]}"
            raise LowBitError(f"{key} of the state dict is of shape {shapes}")
