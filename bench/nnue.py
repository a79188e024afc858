"""Positions a second that train an NNUE on one core: `python -m bench.nnue`.

python -m bench.nnue --widths 256 768 --rounds 3 --json bench/results/nnue.json
Weft's whole step is beside eager's and Inductor's, each in each form of the first layer, and the
loop written by hand in nnue.c, in time of the processor; each backend has a process of its own, and
rounds take turns, of the form best for each. The loader alone is timed too, and parameters after
three steps on one thread and on two are compared bit by bit.
"""

import argparse
import ctypes
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.train import apart, in_turns
from examples.nnue.positions import INPUTS, PIECES, RECORD, Batches, opened
from weft.cli.bench_worker import first_line
from weft.cli.output import show, table, write_json
from weft.cli.suite_text import machine
from weft.runtime.child import Child, ChildError, answer
from weft.runtime.compiler import find_compiler
from weft.train import State, Step, optimisers, schedules

BACKENDS = ("eager", "inductor", "weft", "by hand")
FORMS = ("bag", "weights", "gather", "offsets")
ROLE, BATCH, RATE, SECONDS = "WEFT_NNUE_BACKEND", 4096, 1e-3, 0.5


class Network(nn.Module):
    """(768 -> width) x 2 -> 1, clipped and squared; the form is how columns are summed up."""

    def __init__(self, width: int, form: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form, self.columns = form, nn.Parameter(torch.randn(INPUTS, width) * 0.1)
        self.bias, self.out = nn.Parameter(torch.zeros(width)), nn.Linear(2 * width, 1)

    def view(self, x: Tensor, starts: Tensor) -> Tensor:
        if self.form == "offsets":
            return F.embedding_bag(x, self.columns, starts, mode="sum")
        if self.form == "weights":
            live = (x < INPUTS).to(self.columns.dtype)
            rows = x.clamp(max=INPUTS - 1)
            return F.embedding_bag(rows, self.columns, mode="sum", per_sample_weights=live)
        padded = F.pad(self.columns, (0, 0, 0, 1))
        if self.form == "gather":
            return F.embedding(x, padded).sum(1)
        return F.embedding_bag(x, padded, mode="sum")

    def forward(self, own: Tensor, other: Tensor, starts: Tensor) -> Tensor:
        both = [self.view(x, starts) + self.bias for x in (own, other)]
        return self.out(torch.cat(both, 1).clamp(0, 1).square())


def loss(model: nn.Module, own: Tensor, other: Tensor, starts: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(model(own, other, starts).sigmoid(), target)


def batch(form: str) -> tuple[Tensor, ...]:
    """Lists of 4 to 32 inputs, i32[n, 32] or one after the other; where each starts; targets."""
    torch.manual_seed(1)
    counts = torch.randint(4, PIECES + 1, (BATCH, 1))
    live = torch.arange(PIECES) < counts
    lists = [torch.where(live, torch.randint(INPUTS, live.shape), INPUTS).int() for _ in range(2)]
    starts = (counts.cumsum(0) - counts).flatten().int()
    own, other = (x[live] if form == "offsets" else x for x in lists)
    return own, other, starts, torch.rand(BATCH, 1)


# --- a process that trains ------------------------------------------------------------------------


def whole(width: int, form: str) -> Callable[[], Tensor]:
    """By weft: one program."""
    state = State(Network(width, form), optimisers.adamw())
    step, given = Step(loss, state, schedules.constant(RATE)), batch(form)
    return lambda: step(*given)


def in_parts(width: int, form: str, compile: Callable[[Any], Any]) -> Callable[[], Tensor]:
    """By autograd and torch's fused AdamW, which is the fastest of its kinds."""
    model, given = Network(width, form), batch(form)
    forward = compile(lambda *given: loss(model, *given))
    optimiser = torch.optim.AdamW(model.parameters(), RATE, fused=True)

    def step() -> Tensor:
        optimiser.zero_grad()
        found = forward(*given)
        found.backward()
        optimiser.step()
        return found.detach()

    return step


class Adam(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("p", "m", "v")]


def by_hand(width: int) -> Callable[[], float]:
    """nnue.c, by weft's compiler and with fast mathematics; it takes strips of 128 columns."""
    if width % 128:
        raise ValueError(f"nnue.c has no width {width}, which is no multiple of 128")
    compiler = find_compiler()
    source = Path(__file__).with_name("nnue.c")
    folder = Path(tempfile.mkdtemp())
    fast = ["-ffast-math", "-mprefer-vector-width=512", "-fvisibility=default"]
    compiler.run([*compiler.flags, *fast, "-c", str(source), "-o", str(folder / "nnue.o")], source)
    compiler.link([folder / "nnue.o"], folder / "nnue.so")  # with -ffast-math the whole process
    # would flush subnormals: gcc links crtfastmath.o
    step = ctypes.CDLL(str(folder / "nnue.so")).step
    step.restype = ctypes.c_float
    own, other, _, target = batch("bag")
    model = Network(width, "bag")
    held = [[p.detach().clone(), *torch.zeros(2, *p.shape)] for p in model.parameters()]
    held = [[t.contiguous() for t in row] for row in held]
    room = torch.empty(2 * width * BATCH), torch.empty(BATCH)
    sizes = ctypes.c_int64(BATCH), ctypes.c_int64(width)
    count = 0

    def run() -> float:
        nonlocal count
        count += 1
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (own, other, target)]
        states = [Adam(*(t.data_ptr() for t in row)) for row in held]
        places = [ctypes.c_void_p(t.data_ptr()) for t in room]
        return step(*sizes, *pointers, *states, *places, ctypes.c_int64(count))

    return run


def stepping(backend: str, width: int, form: str) -> Callable[[], Any]:
    if backend == "by hand":
        return by_hand(width)
    if backend == "weft":
        return whole(width, form)
    return in_parts(width, form, torch.compile if backend == "inductor" else lambda f: f)


def threads_agree(width: int, form: str) -> bool:
    """Whether parameters after three steps are the same bits on one thread and on two."""
    kept: list[dict[str, Tensor]] = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        state = State(Network(width, form), optimisers.adamw())
        step, given = Step(loss, state, schedules.constant(RATE)), batch(form)
        for _ in range(3):
            step(*given)
        kept.append(state.tensors())
    torch.set_num_threads(1)
    return all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])


class Session:
    """A network that trains, asked line by line (runtime/child.py)."""

    def __init__(self, backend: str) -> None:
        torch.set_num_threads(1)
        self.backend = backend
        self.step: Callable[[], Any] = list

    def begin(self, width: int, form: str) -> dict[str, list[float]]:
        torch._dynamo.reset()
        self.step = stepping(self.backend, width, form)
        return {"losses": [float(self.step()) for _ in range(5)]}

    def threads(self, width: int, form: str) -> dict[str, bool]:
        return {"equal": threads_agree(width, form)}

    def round(self) -> dict[str, float]:
        times, start = list[float](), time.process_time()
        while len(times) < 2 or time.process_time() - start < SECONDS:
            before = time.process_time()
            self.step()
            times.append(time.process_time() - before)
        return {"ms": 1e3 * min(times)}


# --- what is measured -----------------------------------------------------------------------------


def measured(children: dict[str, Child], width: int, rounds: int) -> dict[str, Any]:
    """By backend: the best step of each form in ms, and rounds of the best form, in turns."""
    rows: dict[str, Any] = {}
    for backend, child in children.items():
        row: dict[str, Any] = {"forms": {}, "losses": {}, "failures": {}}
        for form in FORMS if backend != "by hand" else ("bag",):
            try:
                row["losses"][form] = child.ask(do="begin", width=width, form=form)["losses"]
                row["forms"][form] = child.ask(do="round")["ms"]
            except ChildError as error:
                row["failures"][form] = str(error)
        rows[backend] = row
        if not row["forms"]:
            raise ChildError(f"{backend}, width {width}: {row['failures']}")
        row["best"] = min(row["forms"], key=row["forms"].__getitem__)
        child.ask(do="begin", width=width, form=row["best"])
    in_turns(children, rows, rounds)
    wanted = rows["eager"]["losses"]["bag"]
    for row in rows.values():
        row["a second"] = BATCH / row["ms"] * 1e3
        row["apart"] = apart([*row["losses"].values()], wanted)
    rows["weft"]["threads agree"] = children["weft"].ask(
        do="threads", width=width, form=rows["weft"]["best"]
    )["equal"]
    return rows


def loader(path: str | None) -> float:
    """Positions a second of the example's loader, from a file or from 65,536 random records."""
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = f"{folder}/random.bf"
            draw = np.random.default_rng(0)
            records = np.zeros(65536, RECORD)
            bits = draw.random((len(records), 64)).argsort(1) < draw.integers(4, 33, (65536, 1))
            records["occupied"] = np.packbits(bits, 1, "little").view("<u8")[:, 0]
            records["pieces"] = draw.choice([0, 1, 2, 8, 9, 10], (len(records), 16)) * 17
            Path(path).write_bytes(records.tobytes())
        batches, times = Batches(opened(path), min(BATCH, os.path.getsize(path) // 32)), []
        for place in range(100):
            before = time.process_time()
            batches(place)
            times.append(time.process_time() - before)
        return batches.size / median(times)


def shown(width: int, rows: dict[str, Any]) -> list[str]:
    best = max(rows[b]["a second"] for b in ("eager", "inductor"))
    speed, hand = rows["weft"]["a second"], rows["by hand"]["a second"]
    cells = [f"{rows[b]['a second'] / 1e3:.0f}" for b in BACKENDS]
    off = f"{max(row['apart'] for row in rows.values()):.0e}"
    forms = " ".join(rows[b]["best"] for b in BACKENDS[:3])
    agree = "yes" if rows["weft"]["threads agree"] else "no"
    return [str(width), *cells, f"{speed / best:.2f}", f"{speed / hand:.2f}", forms, off, agree]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", nargs="*", type=int, default=[256, 768, 1536])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--positions", help="a file for the loader")
    parser.add_argument("--json")
    chosen = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as logs:
        one = {"OMP_NUM_THREADS": "2"}  # what a process may use at most; all but `threads` use one
        children = {
            b: Child("bench.nnue", Path(logs) / b, {ROLE: b, **one}, 600.0) for b in BACKENDS
        }
        for width in chosen.widths:
            print(width, file=sys.stderr, flush=True)
            found[str(width)] = measured(children, width, chosen.rounds)
        for child in children.values():
            child.close()
    columns = ["width", *BACKENDS, "x best peer", "x by hand", "forms", "apart", "threads equal"]
    rows = [shown(int(w), r) for w, r in found.items()]
    show(table("thousand positions a second, one core", columns, rows))
    torch.set_num_threads(1)
    loaded = loader(chosen.positions)
    show(f"the loader alone: {loaded / 1e3:.0f} thousand positions a second")
    failures = [
        f"{w}, {b}, {form}: {why}"
        for w, r in found.items()
        for b in r
        for form, why in r[b]["failures"].items()
    ]
    show(*failures)
    if chosen.json is not None:
        facts = {"machine": machine(True), "batch": BATCH, "loader": loaded, "widths": found}
        write_json(facts, chosen.json)
    return int(not all(r["weft"]["threads agree"] for r in found.values()))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if ROLE in os.environ:
        answer(Session(os.environ[ROLE]), first_line)
    else:
        sys.exit(main())
