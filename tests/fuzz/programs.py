"""Random programs as Python text, made step by step beside eager, which says what is valid.

text, inputs = make(seed)             # def program(x0, x1): ..., and the tensors it takes
"""

from __future__ import annotations

import random
import re
from typing import Any

import torch

from weft.frontend.aliasing import overlaps_itself
from weft.frontend.torch_level import type_of

LARGEST = 40_000  # elements of a tensor
# {a} {b} {c} are tensors, {d} an axis, {n} a small number, {f} a float, {p} an exact tensor
SMOOTH = (
    *(
        "{a} + {b}",
        "{a} * {b}",
        "{a} - {f} * {b}",
        "{a} / ({b}.abs() + 1)",
        "torch.maximum({a}, {b})",
    ),
    *(
        "{a}.sin()",
        "{a}.tanh()",
        "{a}.sigmoid() * {b}",
        "F.gelu({a})",
        "F.silu({a})",
        "{a}.exp().log1p()",
    ),
    *("{a}.abs().sqrt()", "({a} * {a} + 1).rsqrt()", "{a}.clamp(-{n}, {f})", "F.softplus({a})"),
    *("{a}.sum({d})", "{a}.mean({d}, keepdim=True)", "{a}.amax({d})", "{a}.softmax({d})"),
    *("{a}.logsumexp({d})", "{a}.var({d}, correction=0)", "{a}.cumsum({d})", "{a}.norm(dim={d})"),
    *("{a} @ {b}", "{a} @ {b}.transpose(-1, -2)", "torch.einsum('...i,...i->...', {a}, {b})"),
    *(
        "F.layer_norm({a}, {a}.shape[-1:])",
        "F.linear({a}, {b}.flatten(0, -2))",
        "{a}.lerp({b}, {f})",
    ),
    *(
        "torch.where({p} > 0, {a}, {b})",
        "{a}.masked_fill({p} < 0, {f})",
        "torch.addcmul({a}, {b}, {c})",
    ),
    *("{a} ** {n}", "{a}.expm1()", "torch.atan2({a}, {b})", "{a}.erf()", "{a}.square().mean()"),
    *(
        "F.conv1d({a}[None, None].flatten(2), torch.ones(1, 1, {n}))",
        "F.avg_pool1d({a}[None].flatten(0, -2), {n})",
    ),
    *(
        "{a}.prod({d})",
        "F.pad({a}, ({n}, 1))",
        "F.pad({a}, (1, {n}), mode='circular')",
        "{a}.diff(dim={d})",
    ),
)
MOVES = (
    *(
        "{a}.transpose({d}, -1)",
        "{a}.flip({d})",
        "{a}.unsqueeze({d})",
        "{a}.reshape(-1)",
        "{a}.flatten()",
    ),
    *(
        "{a}.movedim({d}, 0)",
        "{a}.narrow({d}, 1, {n})",
        "{a}[..., ::2]",
        "{a}[..., {n}:]",
        "{a}.roll({n}, {d})",
    ),
    *(
        "{a}.expand(2, *{a}.shape)",
        "torch.cat([{a}, {b}], {d})",
        "torch.stack([{a}, {b}], {d})",
        "{a}.chunk(2, {d})[-1]",
    ),
    *(
        "{a}.squeeze({d})",
        "{a}.repeat_interleave({n}, {d})",
        "{a}.tril()",
        "{a}.select({d}, 0)",
        "{a}.unfold({d}, {n}, 1)",
    ),
    *(
        "{a}.clone()",
        "{a}.contiguous()",
        "{a}.index_select({d}, torch.tensor([0, 0]))",
        "{a}.T",
        "{a}.diagonal()",
    ),
    *(
        "{a}.detach()",
        "{a}.as_strided(({n},), (1,))",
        "{a}.view({a}.shape)",
        "torch.take_along_dim({a}, {a}.argsort({d}), {d})",
    ),
)
EXACT = (  # of exact tensors: what jumps
    *(
        "{p}.floor()",
        "{p} > {q}",
        "{p}.sign() * {a}",
        "{p}.argmax({d})",
        "{p}.sort({d})[0]",
        "{p}.long() * {n}",
    ),
    *(
        "{p}.isnan()",
        "({p} > 0).sum({d})",
        "{p}.round() % {n}",
        "{p}.long() // {n}",
        "{p}.topk(1, {d})[1]",
    ),
    *(
        "{p}.unique().sum()",
        "{p}.nonzero().sum()",
        "{p}.bool() & ({q} > 0)",
        "({p} * 7).int() ^ {n}",
        "{p}.half()",
    ),
    *(
        "{p}.count_nonzero()",
        "{p}.bincount()",
        "({p} > 0).cumsum({d})",
        "{p}.searchsorted({q}.flatten())",
    ),
    *(
        "F.one_hot({p}.long().abs() % 5)",
        "{p}.trunc().to(torch.int8)",
        "{p}.double()",
        "{p}.bfloat16().float()",
    ),
)
WRITES = (
    *(
        "{a}.add_({b})",
        "{a}.mul_({f})",
        "{a}[0] = {f}",
        "{a}[..., 0] += 1",
        "{a}.copy_({b})",
        "{a}.zero_()",
    ),
    *(
        "{a}.clamp_(-1, 1)",
        "{a}.t_()",
        "{a}.fill_({n})",
        "{a}.select({d}, 0).mul_(2)",
        "{a}.relu_()",
    ),
    *(
        "{a}.masked_fill_({p} > 0, {f})",
        "{a}.index_fill_({d}, torch.tensor([0]), {f})",
        "{a}.unsqueeze_({d})",
    ),
    *("{a}.reshape(-1)[::2].add_(1)", "{a}.sub_({a}.mean())", "{a}.transpose(0, -1).tanh_()"),
)
DTYPES = (*[torch.float32] * 5, torch.float64, torch.int64, torch.bfloat16, torch.bool, torch.int32)
SHAPES = (
    (),
    (1,),
    (5,),
    (3, 4),
    (4, 3),
    (4, 4),
    (2, 3, 4),
    (1, 7),
    (33, 17),
    (8, 64),
    (2, 1, 5),
    (0, 3),
    (130,),
)


class Maker:
    """One program: its lines so far, and eager's value of every variable."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        self.lines: list[str] = []
        self.values: dict[str, Any] = {}
        self.exact: set[str] = set()

    def input(self, dtype: torch.dtype) -> torch.Tensor:
        shape = self.random.choice(SHAPES)
        x = torch.randn(shape) * self.random.choice((1, 1, 1, 3))
        x = (x * 3).to(dtype) if not dtype.is_floating_point else x.to(dtype)
        kind = self.random.randrange(6)
        if kind == 0 and x.dim() > 1:
            x = x.transpose(0, -1).contiguous().transpose(0, -1)
        if kind == 1 and x.dim():
            x = torch.stack([x, x], -1)[..., 0]  # strided
        return x

    def step(self) -> None:
        """Another line, if eager can run it."""
        r = self.random
        group = r.choices((SMOOTH, MOVES, EXACT, WRITES), (8, 5, 3, 2))[0]
        names, exact = list(self.values), sorted(self.exact)
        recent = names[-3:]
        choose: dict[str, Any]
        choose = {k: r.choice(recent if r.random() < 0.6 else names) for k in "abc"}
        choose |= {k: r.choice(exact or ["none"]) for k in "pq"}
        if group is WRITES:
            choose["a"] = r.choice(names)
        choose |= {
            "d": r.choice((0, 0, -1, 1)),
            "n": r.randint(1, 4),
            "f": r.choice((0.5, -1.25, 2.0)),
        }
        expression = r.choice(group).format(**choose)
        used = set(re.findall(r"\b[xv]\d+\b", expression))
        name = f"v{len(self.values)}"
        line = expression if group is WRITES else f"{name} = {expression}"
        a, b = choose["a"], choose["b"]
        if group is WRITES and (
            overlaps_itself(type_of(self.values[a])) or (b in used and overlaps(self.values, a, b))
        ):
            return  # what a write reads of itself depends on the order in which eager goes
        trial = {k: v.clone() for k, v in self.values.items()}
        try:
            with torch.no_grad():
                exec(line, scope(), trial)
        except Exception:
            return
        new = [trial[name]] if name in trial else [trial[choose["a"]]]
        if any(not isinstance(t, torch.Tensor) or t.numel() > LARGEST or big(t) for t in new):
            return
        try:
            with torch.no_grad():
                exec(line, scope(), self.values)
        except Exception:  # such as a write to a view that is expanded
            self.values.pop(name, None)
            return
        self.lines.append(line)
        if group is WRITES:
            self.exact -= {
                n for n in self.exact if n == choose["a"] or overlaps(self.values, n, choose["a"])
            }
        elif (group is not SMOOTH and used <= self.exact) or not new[0].is_floating_point():
            self.exact.add(name)

    def make(self) -> tuple[str, list[torch.Tensor], bool]:
        grads = self.random.random() < 0.35
        for i in range(self.random.randint(1, 4)):
            dtype = torch.float32 if i == 0 or grads else self.random.choice(DTYPES)
            self.values[f"x{i}"] = self.input(dtype)
        self.exact = set(self.values)
        inputs = [t.clone(memory_format=torch.preserve_format) for t in self.values.values()]
        for _ in range(self.random.randint(2, 18)):
            self.step()
        names = list(self.values)
        returned = [names[-1], *self.random.sample(names, min(2, len(names)))]
        lines = [f"def program({', '.join(n for n in names if n[0] == 'x')}):"]
        lines += [f"    {line}" for line in self.lines]
        lines.append(f"    return {', '.join(dict.fromkeys(returned))},")
        writes = any(
            " = " not in line or line.startswith("x") or "[" in line.split("=")[0]
            for line in self.lines
        )
        return "\n".join(lines) + "\n", inputs, grads and not writes


def scope() -> dict[str, Any]:
    return {"torch": torch, "F": torch.nn.functional}


def big(t: torch.Tensor) -> bool:
    """Whether its values are useless to compare."""
    return bool(t.numel() and t.is_floating_point() and not t.double().abs().max() < 1e4)


def overlaps(values: dict[str, Any], a: str, b: str) -> bool:
    first, second = (values[n].untyped_storage().data_ptr() for n in (a, b))
    return bool(first == second)


def make(seed: int) -> tuple[str, list[torch.Tensor], bool]:
    """The program's text, its inputs, and whether to compare gradients as well."""
    return Maker(seed).make()
