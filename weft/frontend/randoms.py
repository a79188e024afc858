"""Random numbers by coordinates: what torch's generator draws becomes a function of one seed.

table = Draws(get_proxy_mode).table()      # {aten.native_dropout.default: of its arguments, ...}

A graph draws one seed a call from torch's generator, so that it is reproducible; each random op is
a stream of that seed. Bits are computed where they are read, and again in a backward graph: no
mask is stored. The numbers are others than eager's, of the same distribution: random="eager" keeps
torch's own. What has no formula here stays torch's as well: randperm, wide ranges.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

import weft.library.philox  # noqa: F401  # pyright: ignore[reportUnusedImport]  # an operator

aten = torch.ops.aten
SEEDS = -(2**63), 2**63 - 1

Shape = Sequence[int]
DIGITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


class Draws:
    """The streams of a graph's seed; `trace` names the graph that is traced now."""

    def __init__(self, trace: Callable[[], object]) -> None:
        self.trace = trace
        self.known: object = None  # the trace that has the seeds
        self.seeds: dict[torch.device, torch.Tensor] = {}
        self.count = 0

    def bits(self, size: Shape, device: Any) -> torch.Tensor:
        """64 random bits for each element: i64."""
        now, place = self.trace(), torch.device(device or "cpu")
        if now is not self.known:
            self.known, self.seeds, self.count = now, {}, 0
        if place not in self.seeds:
            self.seeds[place] = aten.randint.low(*SEEDS, [], dtype=torch.int64, device=place)
        self.count += 1
        return torch.ops.weft.philox.default(self.seeds[place], self.count - 1, size)

    def table(self) -> dict[Any, Callable[..., Any]]:
        """By op, what it is in other ops; NotImplemented for a call that stays torch's."""
        return {op: partial(formula, self.bits) for op, formula in FORMULAS.items()}


Bits = Callable[[Shape, Any], torch.Tensor]


# --- distributions --------------------------------------------------------------------------------


def _number(word: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A number in [0, 1) of as many binary digits as the dtype has, from 32 bits or from 64."""
    digits, width = DIGITS[dtype], 8 * word.element_size()
    return (word >> (width - digits) & (1 << digits) - 1).to(dtype) * 2.0**-digits


def _uniform(bits: Bits, size: Shape, dtype: torch.dtype, device: Any) -> torch.Tensor:
    drawn = bits(size, device)
    return _number(drawn if dtype is torch.float64 else drawn.to(torch.int32), dtype)


def _normal(bits: Bits, size: Shape, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """Box and Muller 1958: 1 - u is in (0, 1]."""
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    drawn = bits(size, device)
    if wide is torch.float64:
        words = drawn, bits(size, device)
    else:  # one draw has the digits of both numbers
        words = drawn.to(torch.int32), (drawn >> 32).to(torch.int32)
    radius, angle = (_number(word, wide) for word in words)
    found = torch.sqrt(-2 * torch.log(1 - radius)) * torch.cos(2 * math.pi * angle)
    return found.to(dtype)


Distribution = Callable[[Bits, Shape, torch.dtype, Any], torch.Tensor]


def _is_plain(dtype: Any, **rest: Any) -> bool:
    strided = rest.pop("layout", None) in (None, torch.strided)
    return dtype in DIGITS and strided and not any(rest.values())


def factory(draw: Distribution, bits: Bits, size: Shape, **how: Any) -> Any:
    """rand(size, dtype=, device=)"""
    dtype = how.pop("dtype", None) or torch.get_default_dtype()
    device = how.pop("device", None)
    return draw(bits, size, dtype, device) if _is_plain(dtype, **how) else NotImplemented


def like(draw: Distribution, bits: Bits, x: torch.Tensor, **how: Any) -> Any:
    """rand_like(x, dtype=, device=)"""
    dtype, device = how.pop("dtype", None) or x.dtype, how.pop("device", None) or x.device
    kept = how.pop("memory_format", None) in (None, torch.preserve_format)
    if not kept or not _is_plain(dtype, **how):
        return NotImplemented
    return _laid_out(draw(bits, x.shape, dtype, device), x)


def _laid_out(found: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """In memory as x is."""
    return found if x.is_contiguous() else aten.copy.default(torch.empty_like(x), found)


def uniform(
    bits: Bits, x: torch.Tensor, low: float = 0, high: float = 1, *, generator: Any = None
) -> Any:
    if generator is not None or x.dtype not in DIGITS or not low <= high:
        return NotImplemented
    return _laid_out(_uniform(bits, x.shape, x.dtype, x.device) * (high - low) + low, x)


def normal(
    bits: Bits, x: torch.Tensor, mean: float = 0, std: float = 1, *, generator: Any = None
) -> Any:
    if generator is not None or x.dtype not in DIGITS or std < 0:
        return NotImplemented
    return _laid_out(_normal(bits, x.shape, x.dtype, x.device) * std + mean, x)


def exponential(bits: Bits, x: torch.Tensor, rate: float = 1, *, generator: Any = None) -> Any:
    if generator is not None or x.dtype not in DIGITS or rate <= 0:
        return NotImplemented
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    found = -torch.log(1 - _uniform(bits, x.shape, wide, x.device)) / rate
    return _laid_out(found.to(x.dtype), x)


def bernoulli(bits: Bits, x: torch.Tensor, p: float, *, generator: Any = None) -> Any:
    """1 with the probability p; of a tensor of these torch checks each, and draws itself."""
    if generator is not None or not 0 <= p <= 1:
        return NotImplemented
    drawn = _uniform(bits, x.shape, torch.float32, x.device)
    return _laid_out((drawn < p).to(x.dtype), x)


def bernoulli_of(bits: Bits, x: torch.Tensor, *, generator: Any = None) -> Any:
    """1 with the probability x."""
    if generator is not None or x.dtype not in DIGITS:
        return NotImplemented
    drawn = _uniform(bits, x.shape, torch.float32, x.device)
    return _laid_out((drawn < checked(x, (x >= 0) & (x <= 1))).to(x.dtype), x)


def checked(x: torch.Tensor, holds: torch.Tensor) -> torch.Tensor:
    """x; an index is out of range where the condition does not hold."""
    first = x.reshape(-1)[:1]  # of constants the read, and its check, would be left out
    return torch.where(holds, x, first.take((~holds).long())) if x.numel() else x


def cauchy(
    bits: Bits, x: torch.Tensor, median: float = 0, sigma: float = 1, *, generator: Any = None
) -> Any:
    if generator is not None or x.dtype not in DIGITS or sigma <= 0:
        return NotImplemented
    drawn = _uniform(bits, x.shape, torch.float64, x.device)
    return _laid_out((torch.tan(math.pi * (drawn - 0.5)) * sigma + median).to(x.dtype), x)


def geometric(bits: Bits, x: torch.Tensor, p: float, *, generator: Any = None) -> Any:
    """How many trials up to the first success, each of the probability p."""
    if generator is not None or x.dtype not in DIGITS or not 0 < p < 1:
        return NotImplemented
    drawn = 1 - _uniform(bits, x.shape, torch.float64, x.device)
    return _laid_out(torch.ceil(torch.log(drawn) / math.log1p(-p)).clamp_min(1).to(x.dtype), x)


def log_normal(
    bits: Bits, x: torch.Tensor, mean: float = 1, std: float = 2, *, generator: Any = None
) -> Any:
    if generator is not None or x.dtype not in DIGITS or std <= 0:
        return NotImplemented
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    found = torch.exp(_normal(bits, x.shape, wide, x.device) * std + mean)
    return _laid_out(found.to(x.dtype), x)


def normal_of(bits: Bits, mean: Any, std: Any = 1.0, size: Any = None, **how: Any) -> Any:
    """Means and deviations are tensors or numbers, of a `size` if both are these."""
    tensors = [t for t in (mean, std) if isinstance(t, torch.Tensor)]
    if how.pop("generator", None) is not None:
        return NotImplemented
    if not tensors:
        if std < 0:
            return NotImplemented
        return factory(lambda *given: _normal(*given) * std + mean, bits, size, **how)
    dtype = torch.result_type(*tensors) if len(tensors) > 1 else tensors[0].dtype
    if dtype not in DIGITS or not (isinstance(std, torch.Tensor) or std >= 0):
        return NotImplemented
    if isinstance(std, torch.Tensor):
        std = checked(std, std >= 0)
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    return (_normal(bits, shape, dtype, tensors[0].device) * std + mean).to(dtype)


def randint(bits: Bits, *given: Any, **how: Any) -> Any:
    """randint([low,] high, size): the upper half of a product of 32 bits (Lemire 2019)."""
    *bounds, size = given
    dtype, device = how.pop("dtype", None) or torch.int64, how.pop("device", None)
    low, high = bounds if len(bounds) > 1 else (0, bounds[0])
    plain = how.pop("layout", None) in (None, torch.strided) and not any(how.values())
    known = isinstance(low, int) and isinstance(high, int) and 0 < high - low <= 1 << 31
    if not (plain and known) or dtype.is_complex or dtype is torch.bool:
        return NotImplemented
    word = bits(size, device) & 0xFFFFFFFF
    return ((word * (high - low) >> 32) + low).to(dtype)


def randint_like(bits: Bits, x: torch.Tensor, *bounds: int, **how: Any) -> Any:
    kept = how.pop("memory_format", None) in (None, torch.preserve_format)
    how["dtype"], how["device"] = how.get("dtype") or x.dtype, how.get("device") or x.device
    found = randint(bits, *bounds, x.shape, **how) if kept else NotImplemented
    return found if found is NotImplemented else _laid_out(found, x)


def multinomial(
    bits: Bits, x: torch.Tensor, count: int, replacement: bool = False, *, generator: Any = None
) -> Any:
    """Places along the last axis by their probabilities: of the largest x / exponential.

    Several that may be the same stay torch's: a search of running sums takes long to compile.
    """
    own = count == 1 or (not replacement and 1 < count <= x.shape[-1])
    if generator is not None or x.dtype not in DIGITS or not own or not x.numel():
        return NotImplemented
    wide = x.to(torch.float64 if x.dtype is torch.float64 else torch.float32)
    wide = checked(wide, (wide >= 0) & (wide < math.inf) & (wide.sum(-1, keepdim=True) > 0))
    race = wide / exponential(bits, wide).clamp_min(torch.finfo(wide.dtype).tiny)
    return race.argmax(-1, keepdim=True) if count == 1 else race.topk(count).indices


def rrelu(
    bits: Bits, x: torch.Tensor, noise: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False, generator: Any = None,
) -> Any:  # fmt: skip
    """A leaky relu, in training of random slopes; and these."""
    if generator is not None or x.dtype not in DIGITS:
        return NotImplemented
    if not training:
        return torch.where(x > 0, x, x * ((lower + upper) / 2)), noise
    slope = uniform(bits, x, lower, upper)
    if slope is NotImplemented:
        return slope
    return torch.where(x <= 0, x * slope, x), torch.where(x <= 0, slope, 1)


def native_dropout(bits: Bits, x: torch.Tensor, p: float, train: bool | None) -> Any:
    """x * mask / (1 - p), and the mask."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if not 0 <= p < 1 or x.dtype not in DIGITS:
        return NotImplemented
    mask = _laid_out(_uniform(bits, x.shape, torch.float32, x.device) >= p, x)
    return x * mask * (1.0 / (1.0 - p)), mask


FORMULAS: dict[Any, Callable[..., Any]] = {
    aten.rand.default: partial(factory, _uniform),
    aten.randn.default: partial(factory, _normal),
    aten.rand_like.default: partial(like, _uniform),
    aten.randn_like.default: partial(like, _normal),
    aten.uniform.default: uniform,
    aten.normal_functional.default: normal,
    aten.exponential.default: exponential,
    aten.bernoulli.p: bernoulli,
    aten.bernoulli.default: bernoulli_of,
    aten.cauchy.default: cauchy,
    aten.geometric.default: geometric,
    aten.log_normal.default: log_normal,
    aten.normal.Tensor_float: normal_of,
    aten.normal.float_Tensor: normal_of,
    aten.normal.Tensor_Tensor: normal_of,
    aten.normal.float_float: normal_of,
    aten.randint.default: randint,
    aten.randint.low: randint,
    aten.randint_like.default: randint_like,
    aten.randint_like.low_dtype: randint_like,
    aten.rrelu_with_noise_functional.default: rrelu,
    aten.multinomial.default: multinomial,
    aten.native_dropout.default: native_dropout,
}
