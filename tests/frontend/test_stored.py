"""Captured programs on disk: a later process traces none of them, and nothing stale is taken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from weft.driver import Builder
from weft.frontend import autograd
from weft.frontend.assumptions import ANY
from weft.frontend.autograd import graph_backend
from weft.frontend.specialise import FX, Session
from weft.frontend.stored import Store, packed, unpacked
from weft.options import Options

Data = dict[str, bytes]


def session(data: Data, facts: tuple[Any, ...] = (), **options: Any) -> Session:
    store = Store(facts, data.get, data.__setitem__)
    return replace(Builder(Options(**options)).session(), store=store)


def compiled(fn: Callable[..., Any], data: Data, **options: Any) -> Callable[..., Any]:
    """Compiled as in a new process that finds `data`."""
    torch.compiler.reset()
    counters.clear()
    return torch.compile(fn, backend=graph_backend(session(data, **options)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = F.dropout(F.gelu(self.norm(self.first(x))), 0.25)
        return self.last(hidden), hidden.detach().T, x


def stepped(fn: Callable[..., Any], twice: bool = False) -> list[torch.Tensor]:
    """Results, gradients and state of a step of Net as `fn` makes it, from one start."""
    torch.manual_seed(0)
    net = Net()
    x = torch.randn(5, 6, requires_grad=True)
    torch.manual_seed(1)
    y, hidden, same = fn(net, x)
    loss = y.square().mean() + same.sum()
    loss.backward(retain_graph=twice)
    if twice:
        loss.backward()
    found = [y.detach(), hidden, *net.state_dict().values(), x.grad]
    return [t.clone() for t in (*found, *(p.grad for p in net.parameters())) if t is not None]


def call(net: Net, x: torch.Tensor) -> Any:
    return net(x)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("random", ["fused", "eager"])
def test_gradients_of_a_stored_pair_are_those_of_the_first(random: str, twice: bool) -> None:
    data: Data = {}
    first = stepped(compiled(call, data, random=random))
    assert len(data) == 1 and counters["weft"]["stored_hit"] == 0
    again = stepped(compiled(call, data, random=random), twice)
    assert counters["weft"]["stored_hit"] == 1
    if twice:  # gradients add up; what is not one is as before
        again = [t / 2 if i >= len(first) - 7 else t for i, t in enumerate(again)]
    assert all(map(torch.equal, first, again)) and len(first) == len(again)


def test_a_hit_runs_no_autograd_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    data: Data = {}
    stepped(compiled(call, data))
    monkeypatch.setattr(autograd, "aot_autograd", lambda **_: pytest.fail("AOTAutograd runs"))
    stepped(compiled(call, data))


def test_no_gradients() -> None:
    data: Data = {}

    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.add_(x)
        return x.softmax(1), y.T, x.sum(0)

    def run(data: Data) -> list[torch.Tensor]:
        x, y = torch.arange(12.0).view(3, 4), torch.ones(3, 4)
        return [*compiled(fn, data)(x, y), y]

    first, again = run(data), run(data)
    assert counters["weft"]["stored_hit"] == 1
    assert all(map(torch.equal, first, again))


def test_the_backward_takes_other_strides_than_it_was_stored_for() -> None:
    data: Data = {}

    def run(turned: bool) -> Any:
        x = torch.arange(24.0).view(2, 3, 4).requires_grad_()
        y = compiled(lambda x: x.exp().sin(), data)(x)
        given = torch.arange(24.0).view(4, 3, 2).permute(2, 1, 0)
        y.backward(given if turned else given.contiguous())
        return x.grad

    plain = run(False)
    assert torch.equal(run(True), plain) and counters["weft"]["stored_hit"] == 1


def test_a_stored_graph_can_be_asked_for() -> None:
    """For calls that its program does not fit: the graph is made of its own text."""
    from weft.frontend import stored_gradients

    data: Data = {}
    compiled(lambda x: x.exp().sin(), data)(torch.ones(3, requires_grad=True)).sum().backward()
    (value,) = data.values()
    found = Store((), lambda _: value, data.__setitem__).load("key")
    program = stored_gradients._program(found[1][0], session({}))  # pyright: ignore
    assert isinstance(program.graph, FX)
    (assumed,) = program.specials
    assert assumed.modes[0] is ANY
    shapes = [(fact[1], fact[3]) for fact in assumed.inputs]
    inputs = [torch.ones(shape, dtype=dtype) for shape, dtype in shapes]
    for mine, theirs in zip(program(*inputs), program.graph(*inputs), strict=True):
        torch.testing.assert_close(mine, theirs)


# --- keys -----------------------------------------------------------------------------------------


def key_of(fn: Any, *args: Any, facts: Any = (), within: Any = None, how: Any = ()) -> str | None:
    keys: list[str | None] = []
    store = Store(facts, {}.get, {}.__setitem__)

    def backend(graph: FX, examples: Any) -> Any:
        keys.append(store.key(graph, examples, None, *how))
        return graph.forward

    torch.compiler.reset()
    context: AbstractContextManager[Any] = within or nullcontext()
    with context:
        torch.compile(fn, backend=backend)(*args)
    return keys[0]


def base(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).relu() * 2 + 0.0


def inputs(**named: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(4, 4, **named), torch.ones(4, 4)


def edited(old: str, new: str) -> Any:
    """`base` with another constant, operator or place."""
    text = "def base(x, w):\n    return (x @ w).relu() * 2 + 0.0\n".replace(old, new)
    scope: dict[str, Any] = {}
    exec(compile(text, "base.py", "exec"), scope)
    return scope["base"]


def test_equal_programs_have_one_key() -> None:
    first = key_of(base, *inputs())
    assert first is not None and first == key_of(base, *inputs())
    assert key_of(edited("", ""), *inputs()) == key_of(edited("", ""), *inputs())


def switched(setter: Any, value: Any, back: Any) -> Any:
    class Switch:
        def __enter__(self) -> None:
            setter(value)

        def __exit__(self, *_: Any) -> None:
            setter(back)

    return Switch()


WITHIN: dict[str, Callable[[], Any]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no gradients": torch.no_grad,
    "deterministic": lambda: switched(torch.use_deterministic_algorithms, True, False),
    "default dtype": lambda: switched(torch.set_default_dtype, torch.float64, torch.float32),
    "no oneDNN": lambda: torch.backends.mkldnn.flags(enabled=False),
    "attention": lambda: nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH),
    "AOTAutograd": lambda: functorch_config.patch(treat_parameters_as_free_to_save=False),
    "threads": lambda: switched(torch.set_num_threads, 1, torch.get_num_threads()),
}


@pytest.mark.parametrize("name", WITHIN)
def test_a_mode_is_in_the_key(name: str) -> None:
    keys = {key_of(base, *inputs()), key_of(base, *inputs(), within=WITHIN[name]())}
    assert len(keys) == 2 and None not in keys


INPUTS: dict[str, Callable[[], Any]] = {
    "requires_grad": lambda: inputs(requires_grad=True),
    "dtype": lambda: tuple(t.double() for t in inputs()),
    "shape": lambda: (torch.ones(3, 4), torch.ones(4, 4)),
    "strides": lambda: (torch.ones(4, 4).T.contiguous().T, torch.ones(4, 4)),
    "offset": lambda: (torch.ones(5, 4)[1:], torch.ones(4, 4)),
    "storage": lambda: (torch.ones(5, 4)[:4], torch.ones(4, 4)),
    "no leaf": lambda: (torch.ones(4, 4, requires_grad=True) * 1, torch.ones(4, 4)),
}


def test_every_fact_of_an_input_is_in_the_key() -> None:
    keys = [key_of(base, *inputs()), *(key_of(base, *make()) for make in INPUTS.values())]
    assert len(set(keys)) == len(keys) and None not in keys


EDITS = [
    ("", ""), ("* 2", "* 3"), ("* 2", "* 2.0"), ("+ 0.0", "+ -0.0"), ("relu", "sigmoid"),
    ("x @ w", "w @ x"), ("relu()", "relu_()"), ("* 2", "* True"), ("    return", "\n    return"),
    ("relu()", "sum(1, True)"), ("relu()", "sum((1, 0), True)"),
]  # fmt: skip


def test_every_edit_is_in_the_key() -> None:
    keys = [key_of(edited(*edit), *inputs()) for edit in EDITS]
    assert len(set(keys)) == len(keys) and None not in keys


def test_options_are_in_the_key() -> None:
    def built(**options: Any) -> Any:
        store = Builder(Options(**options)).session().store
        assert store is not None
        return key_of(base, *inputs(), facts=store.facts)

    changed = ({"fuse": "none"}, {"target": "cpu:avx2"}, {"freeze": True}, {"random": "eager"})
    keys = {built(), *(built(**c) for c in changed), key_of(base, *inputs(), how=("gradients",))}
    assert len(keys) == 6 and None not in keys
    assert Builder(Options(verbose=1)).session().store is None  # all passes are to be seen


def trained() -> Any:
    return inputs(requires_grad=True)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return g * 2


@torch.library.custom_op("weft_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Watched(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


REFUSED: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "an operator of the program's": (lambda x, w: twice(x) + w, inputs),
    "a gradient of its own": (lambda x, w: Doubled.apply(x) + w, trained),
    "a body": (lambda x, w: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) + w, inputs),
    "a checkpoint": (lambda x, w: checkpoint(base, x, w, use_reentrant=False), trained),
    "inputs in one storage": (base, lambda: torch.ones(2, 4, 4).unbind()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_text_is_not_kept(name: str) -> None:
    fn, make = REFUSED[name]
    assert key_of(fn, *make()) is None


def test_hooks_of_saved_tensors_and_modes_are_not_kept() -> None:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert key_of(base, *trained()) is None
    graph = torch.fx.symbolic_trace(lambda x: torch.relu(x))
    store = Store((), {}.get, {}.__setitem__)
    assert store.key(graph, [torch.ones(2)], None) is not None
    with Watched():  # Dynamo takes modes off where it compiles; calls of other sizes may have them
        assert store.key(graph, [torch.ones(2)], None) is None


def test_numbers_of_this_process_are_not_packed() -> None:
    from weft.frontend.capture import capture

    graph = torch.fx.symbolic_trace(lambda x: (x + 1).relu())
    plain = capture(graph, [torch.ones(3)])
    kept = packed(plain)
    assert kept is not None
    again = unpacked(kept, plain.graph.name)
    assert again.graph == plain.graph and again.layouts == plain.layouts  # nodes are interned
    assert again.leaves == plain.leaves and again.graph.names == plain.graph.names
    assert packed(replace(plain, numbers={0: 1.0})) is None


def test_a_torn_entry_is_a_miss() -> None:
    data: Data = {}
    first = stepped(compiled(call, data))
    torn = {key: value[:50] for key, value in data.items()}
    again = stepped(compiled(call, torn))
    assert all(map(torch.equal, first, again)) and all(len(value) > 50 for value in torn.values())


PROGRAM = """
import hashlib, torch, weft
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
x = torch.randn(4, 8)
loss = torch.compile(lambda x: net(x).square().mean(), backend="weft")
loss(x).backward()
optimiser = torch.optim.AdamW(net.parameters(), 1e-2)
def step(x):
    found = net(x).square().mean()
    found.backward()
    optimiser.step()
    optimiser.zero_grad()
    return found.detach()
whole = weft.compile(step)
grads = [p.grad.clone() for p in net.parameters()]
losses = [whole(x) for _ in range(3)]
told = [*grads, *losses, *net.parameters()]
digest = hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in told)).hexdigest()
print(digest, counters["weft"]["stored_hit"], counters["weft"]["stored_miss"])
"""


def test_another_process_traces_nothing_and_gives_the_same_bits(tmp_path: Path) -> None:
    def run() -> list[str]:
        environment = {**os.environ, "WEFT_CACHE": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first, again = run(), run()
    assert first[0] == again[0]
    assert first[1:] == ["0", "2"] and again[1:] == ["2", "0"]
