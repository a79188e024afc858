"""Training steps through torch.compile: `python -m bench.train`, the networks of steps.py.

python -m bench.train --only MLP NNUE --json bench/results/train.json
Each backend has a process of its own, and their rounds take turns. A step is forward, backward
and AdamW, which is compiled as well (eager's is the fused one); `whole` is weft.compile of all of
the step. Losses of 20 steps are compared with eager's, for one seed, where numbers are torch's own;
times are of weft's own random numbers.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Literal

import torch

import weft
from bench.steps import STEPS
from weft.cli.bench_worker import first_line
from weft.cli.output import milliseconds, show, table, write_json
from weft.cli.suite_text import machine
from weft.runtime.child import Child, ChildError, answer

PEERS, OURS = ("eager", "inductor"), ("weft", "whole")
BACKENDS = PEERS + OURS
ROLE, BUDGET = "WEFT_TRAIN_BACKEND", "WEFT_TRAIN_BUDGET"  # of a child: see memory.py
STEPS_COMPARED, ROUNDS, SECONDS, EVEN = 20, 5, 0.3, 2e-3


# --- a process that trains ------------------------------------------------------------------------


def compiler(backend: str, exact: bool) -> Callable[[Any], Any]:
    """What compiles a function; `exact`: with torch's own random numbers."""
    if backend == "eager":
        return lambda f: f
    if backend == "inductor":
        return lambda f: torch.compile(f, options={"fallback_random": exact})
    random: Literal["eager", "fused"] = "eager" if exact else "fused"
    if backend == "whole":
        return lambda f: weft.compile(f, target="cpu", random=random)
    return lambda f: torch.compile(f, backend="weft", options={"random": random})


def training(name: str, backend: str, exact: bool) -> Callable[[], torch.Tensor]:
    """A function that makes a step and returns its loss."""
    torch.manual_seed(0)
    network, inputs, loss = STEPS[name]()
    compiled = compiler(backend, exact)
    if backend == "whole":
        return whole(network, inputs, loss, compiled)
    forward = compiled(lambda *given: loss(network, *given))
    optimiser = torch.optim.AdamW(network.parameters(), 1e-3, fused=backend == "eager" or None)
    update = compiled(optimiser.step)

    def step() -> torch.Tensor:
        optimiser.zero_grad()
        found = forward(*inputs)
        found.backward()
        update()
        return found.detach()

    return step


def whole(
    network: torch.nn.Module, inputs: Any, loss: Callable[..., Any], compiled: Callable[[Any], Any]
) -> Callable[[], torch.Tensor]:
    """The step as one program."""
    optimiser = torch.optim.AdamW(network.parameters(), 1e-3)

    def step(*given: torch.Tensor) -> torch.Tensor:
        found = loss(network, *given)
        found.backward()
        optimiser.step()
        optimiser.zero_grad()
        return found.detach()

    training_step = compiled(step)
    return lambda: training_step(*inputs)


def kept_bytes(step: Callable[[], Any]) -> int:
    """Of tensors that forward saves for backward, each storage once."""
    seen: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        if not isinstance(t, torch.nn.Parameter):
            seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        step()
    return sum(seen.values())


class Session:
    """A network that trains, asked line by line (runtime/child.py)."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.step: Callable[[], Any] = list

    def begin(self, name: str) -> dict[str, Any]:
        torch._dynamo.reset()
        torch.manual_seed(1)
        exact = training(name, self.backend, True)
        losses = [exact().item() for _ in range(STEPS_COMPARED)]
        torch._dynamo.reset()
        start = time.perf_counter()
        self.step = training(name, self.backend, False)
        self.step()  # of a whole step the first is eager's: it makes the optimiser's state
        self.step()
        seconds = time.perf_counter() - start
        return {"losses": losses, "seconds": seconds, "kept": kept_bytes(self.step)}

    def round(self) -> dict[str, float]:
        return {"ms": mean_ms(self.step)}


def mean_ms(call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Of a call, over SECONDS of them."""
    count, start = 0, clock()
    while not count or clock() - start < SECONDS:
        call()
        count += 1
    return 1e3 * (clock() - start) / count


# --- what is measured -----------------------------------------------------------------------------


def timed(children: dict[str, Child], name: str) -> dict[str, Any]:
    """By child: the median step in ms, bytes kept, seconds to the first step, the losses."""
    rows: dict[str, Any] = {}
    for backend, child in children.items():
        try:
            rows[backend] = child.ask(do="begin", name=name)
        except ChildError as error:
            rows[backend] = {"failure": str(error)}
    in_turns(children, rows)
    return rows


def in_turns(children: dict[str, Child], rows: dict[str, Any], rounds: int = ROUNDS) -> None:
    """Have each child without a failure time what it has begun, and add the median in ms."""
    running = [b for b in children if "failure" not in rows[b]]
    for row in rows.values():
        row |= {"rounds": [], "ms": None}
    for backend in running * rounds:
        rows[backend]["rounds"].append(children[backend].ask(do="round")["ms"])
    for backend in running:
        rows[backend]["ms"] = median(rows[backend]["rounds"])


def measured(children: dict[str, Child], name: str) -> dict[str, Any]:
    """What `timed` tells by backend, and how far losses are from eager's."""
    rows = timed(children, name)
    for row in rows.values():
        if "losses" in row:
            row["apart"] = apart(row["losses"], rows["eager"]["losses"])
    return rows


def apart(losses: Sequence[Any], wanted: Sequence[float]) -> float:
    """How far losses are off at most, relatively; NaN where one is."""
    found, eager = (torch.tensor(x, dtype=torch.float64) for x in (losses, wanted))
    return (found / eager - 1).abs().max().item()


def shown(name: str, rows: dict[str, Any]) -> list[str]:
    best = best_peer(rows)
    ratios = (f"{best / rows[b]['ms']:.2f}" if best and rows[b]["ms"] else "-" for b in OURS)
    kept = (f"{rows[b].get('kept', 0) / 1e6:.1f}" for b in BACKENDS)
    apart = (f"{rows[b].get('apart', float('nan')):.0e}" for b in OURS)
    times = (milliseconds(rows[b]["ms"]) for b in BACKENDS)
    return [name, *times, *ratios, " ".join(kept), " ".join(apart)]


def best_peer(rows: dict[str, Any]) -> float | None:
    return min((rows[b]["ms"] for b in PEERS if rows[b]["ms"]), default=None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names; all without")
    parser.add_argument("--json")
    chosen = parser.parse_args()
    names = [n for n in STEPS if not chosen.only or any(w in n for w in chosen.only)]
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as logs:
        children = {b: Child("bench.train", Path(logs) / b, {ROLE: b}, 600.0) for b in BACKENDS}
        for name in names:
            print(name, file=sys.stderr, flush=True)
            found[name] = measured(children, name)
        for child in children.values():
            child.close()
    columns = ["step", *BACKENDS, *(f"best / {b}" for b in OURS), "MB kept", "loss apart"]
    show(table("milliseconds", columns, [shown(n, r) for n, r in found.items()]))
    for own in OURS:
        ratios = [best_peer(r) / r[own]["ms"] for r in found.values() if r[own]["ms"]]  # type: ignore[operator]
        mean = f"{geometric_mean(ratios):.2f}" if ratios else "none ran"
        show(f"{own}, times as fast as the better peer: {mean}")
    failures = [
        f"{n}, {b}: {r[b]['failure']}" for n, r in found.items() for b in r if "failure" in r[b]
    ]
    show(*failures)
    if chosen.json is not None:
        write_json({"machine": machine(True), "steps": found}, chosen.json)
    return int(any(not r[b].get("apart", 1.0) <= EVEN for r in found.values() for b in OURS))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if ROLE in os.environ:
        torch._functorch.config.activation_memory_budget = float(os.environ.get(BUDGET, "1"))
        answer(Session(os.environ[ROLE]), first_line)
    else:
        sys.exit(main())
