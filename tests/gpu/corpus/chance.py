"""Programs by chance: views, broadcasts, concatenations, pads and reductions of one another.

chance(7) is the same program every time; several of its tensors are results.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch.nn import functional as F

from tests.gpu.corpus.program import Program
from weft.cli.program import Source

EXTENTS = (1, 2, 3, 5, 8, 17, 32, 33, 70)
MOST = 20_000  # elements of a tensor
Step = Callable[[list[torch.Tensor]], torch.Tensor]


def chance(seed: int) -> Program:
    return Program(f"chance {seed}", lambda: source(seed))


def source(seed: int) -> Source:
    """Steps are chosen while they run once: each must fit the shapes that are there."""
    dice = random.Random(seed)
    torch.manual_seed(seed)
    shape = tuple(dice.choice(EXTENTS) for _ in range(dice.choice((1, 2, 2, 3, 3, 4))))
    while torch.Size(shape).numel() > MOST:
        shape = shape[1:]
    dtype = dice.choice((torch.float32,) * 4 + (torch.float16, torch.bfloat16))
    args = (torch.randn(shape).to(dtype), torch.randn(shape[-1:]).to(dtype))
    steps: list[Step] = []
    made = list(args)
    exact = [x.double() for x in args]
    for _ in range(dice.randint(3, 9)):
        step = choose(dice, made)
        value, wide = step(made), step(exact)
        if not told(value, wide):
            continue
        steps.append(step)
        made.append(value)
        exact.append(wide)
    unread = made[-dice.randint(1, 3) :]
    first = len(made) - len(unread)

    def run(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = list(args)
        for step in steps:
            made.append(step(made))
        return tuple(made[first:])

    return Source(run, args, {}, f"chance {seed}")


def told(value: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether a value is known from rounded arguments: its error is not of its own size."""
    off = float((value.double() - exact).norm())
    return off <= 0.05 * float(exact.norm())


def choose(dice: random.Random, made: list[torch.Tensor]) -> Step:
    """One more step: of what was made last, mostly."""
    at = len(made) - 1 if dice.random() < 0.7 else dice.randrange(len(made))
    x = made[at]
    kind = dice.choice([unary, unary, binary, binary, view, view, joined, reduced, reduced, rows])
    one = kind(dice, x, made)
    return lambda made: one(made[at], made)


Change = Callable[[torch.Tensor, list[torch.Tensor]], torch.Tensor]
UNARY: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    torch.tanh, torch.sigmoid, F.relu, F.gelu, lambda x: x * 0.5 + 1, lambda x: (x > 0).to(x.dtype),
    lambda x: x.clamp(-1, 1), lambda x: x.float().exp().clamp(max=9).to(x.dtype),
)  # fmt: skip
FOLDS: tuple[Callable[[torch.Tensor, tuple[int, ...], bool], torch.Tensor], ...] = (
    lambda x, d, k: x.mean(d, k), lambda x, d, k: x.amax(d, k), lambda x, d, k: x.sum(d, k),
    lambda x, d, k: (x * x).mean(d, k).sqrt(), lambda x, d, k: x.logsumexp(d, k),
    lambda x, d, k: x.var(d, correction=0, keepdim=k), lambda x, d, k: x.amin(d, k),
)  # fmt: skip


def unary(dice: random.Random, x: torch.Tensor, made: list[torch.Tensor]) -> Change:
    function = dice.choice(UNARY)
    return lambda x, made: function(x)


def fits(x: torch.Tensor, y: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(x.shape, y.shape).numel() <= MOST
    except RuntimeError:
        return False


def binary(dice: random.Random, x: torch.Tensor, made: list[torch.Tensor]) -> Change:
    """With another tensor that broadcasts."""
    other = dice.choice([i for i, y in enumerate(made) if fits(x, y)])
    sign = dice.choice((torch.add, torch.sub, torch.mul, torch.maximum))
    return lambda x, made: sign(x, made[other])


def view(dice: random.Random, x: torch.Tensor, made: list[torch.Tensor]) -> Change:
    if not x.dim():
        return lambda x, made: x[None].expand(5)
    d = dice.randrange(x.dim())
    n = x.shape[d]
    order = dice.sample(range(x.dim()), x.dim())
    start, step, pad = dice.randrange(n), dice.choice((1, 2, 3)), dice.choice((-1, 0, 2, 5))
    before = -1 if pad < 0 and n > 1 else max(pad, 0)
    inner, outer = (0, 0) * (x.dim() - 1 - d), (slice(None),) * d
    return dice.choice((
        lambda x, made: x.permute(order),
        lambda x, made: x.narrow(d, start, n - start)[(*outer, slice(None, None, step))],
        lambda x, made: F.pad(x, (*inner, before, 3), value=0.5),
        lambda x, made: x.flip(d),
        lambda x, made: x.reshape(-1),
        lambda x, made: x.flatten(d) if d < x.dim() - 1 else x.unsqueeze(d),
        lambda x, made: x.roll(start, d),
    ))  # fmt: skip


def joined(dice: random.Random, x: torch.Tensor, made: list[torch.Tensor]) -> Change:
    """Beside itself, or another of the same shape."""
    if not x.dim() or x.numel() * 2 > MOST:
        return lambda x, made: x * 2
    d = dice.randrange(x.dim())
    other = dice.choice([i for i, y in enumerate(made) if y.shape == x.shape])
    return lambda x, made: torch.cat((x, made[other].to(x.dtype), x.narrow(d, 0, 1)), d)


def axes(dice: random.Random, x: torch.Tensor) -> tuple[int, ...]:
    return tuple(sorted(dice.sample(range(x.dim()), dice.randint(1, x.dim()))))


def reduced(dice: random.Random, x: torch.Tensor, made: list[torch.Tensor]) -> Change:
    """Along any of its axes; often beside what it came from."""
    if not x.dim():
        return lambda x, made: x * 2
    fold, along, again = dice.choice(FOLDS), axes(dice, x), dice.random() < 0.5
    if again:
        return lambda x, made: x - fold(x, along, True)
    keep = dice.random() < 0.5
    return lambda x, made: fold(x, along, keep)


def rows(dice: random.Random, x: torch.Tensor, made: list[torch.Tensor]) -> Change:
    if not x.dim():
        return lambda x, made: x + 1
    d = dice.randrange(x.dim())
    return dice.choice((
        lambda x, made: x.softmax(d),
        lambda x, made: x.log_softmax(d),
        lambda x, made: (x * 0.1).cumsum(d),
        lambda x, made: F.layer_norm(x, x.shape[-1:]),
        lambda x, made: x @ x.transpose(-1, -2) if x.dim() > 1 and x.shape[-2] < 40 else x.tanh(),
    ))  # fmt: skip
