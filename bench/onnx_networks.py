"""ONNX's nine networks beside ONNX Runtime: `python -m bench.onnx_networks`.

python -m bench.onnx_networks --only resnet --json bench/results/onnx_networks.json
The graphs are those of the wheel of onnx, whose weights are left out: here they are random, of the
sizes that the graphs state, and one file is given to all. Each backend has a process of its own;
rounds take turns. With one thread, the default, CPU time is measured, which other programs on the
machine change least. Results are compared with ONNX Runtime's.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, TensorProto, numpy_helper

import weft
from bench.train import in_turns, mean_ms
from weft.cli.bench_worker import first_line
from weft.cli.output import milliseconds, show, table, write_json
from weft.cli.suite_text import machine
from weft.runtime.child import Child, ChildError, answer

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
PEERS, OURS = ("onnxruntime", "eager", "inductor"), ("weft", "weft-frozen")
BACKENDS = PEERS + OURS
ROLE, THREADS = "WEFT_ONNX_BACKEND", "WEFT_ONNX_THREADS"
EVEN = 1e-3


def networks() -> dict[str, Path]:
    return {p.stem.removeprefix("light_"): p for p in sorted(LIGHT.glob("light_*.onnx"))}


def with_weights(path: Path) -> ModelProto:
    """The network with an initialiser in place of each node that makes a constant tensor."""
    model = onnx.load(path)
    random = np.random.default_rng(0)
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in held:
            kept.append(node)
            continue
        shape = tuple(held[node.input[0]].tolist())
        spread = np.sqrt(2 / max(np.prod(shape[1:]), 1))
        values = (
            random.normal(0, spread, shape) if len(shape) > 1 else random.uniform(0.5, 1.5, shape)
        )
        tensor = numpy_helper.from_array(values.astype(np.float32), node.output[0])
        model.graph.initializer.append(tensor)
    if (
        kept[-1].op_type == "Softmax"
    ):  # with random weights it is 1 at one class, and hides the rest
        model.graph.output[0].name = kept.pop().input[0]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def image(model: ModelProto) -> np.ndarray[Any, Any]:
    held = {t.name for t in model.graph.initializer}
    (given,) = (v for v in model.graph.input if v.name not in held)
    assert given.type.tensor_type.elem_type == TensorProto.FLOAT
    shape = [d.dim_value or 1 for d in given.type.tensor_type.shape.dim]
    return np.random.default_rng(1).random(shape, np.float32)


# --- a process that runs networks -----------------------------------------------------------------


def runner(backend: str, file: str, x: np.ndarray[Any, Any]) -> Callable[[], Any]:
    """A function of no arguments that computes the network's first output."""
    if backend == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(file, options, providers=providers)
        feed = {session.get_inputs()[0].name: x}
        return lambda: session.run(None, feed)[0]
    module, tensor = weft.from_onnx(file), torch.from_numpy(x)
    compiled: Any = module
    if backend == "inductor":
        compiled = torch.compile(module)
    if backend in OURS:
        compiled = weft.compile(module, freeze=backend == "weft-frozen")

    def call() -> Any:
        with torch.no_grad():
            found = compiled(tensor)
        return found[0] if isinstance(found, tuple) else found

    return call


class Session:
    """A network that is run, asked line by line (runtime/child.py)."""

    def __init__(self, backend: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.clock = time.process_time if threads == 1 else time.perf_counter
        self.backend = backend
        self.call: Callable[[], Any] = list

    def begin(self, file: str, result: str) -> dict[str, float]:
        torch._dynamo.reset()
        x, start = image(onnx.load(file)), time.perf_counter()
        self.call = runner(self.backend, file, x)
        first = np.asarray(self.call())
        seconds = time.perf_counter() - start
        np.save(result, first)
        return {"seconds": seconds}

    def round(self) -> dict[str, float]:
        return {"ms": mean_ms(self.call, self.clock)}


# --- what is measured -----------------------------------------------------------------------------


def measured(children: dict[str, Child], path: Path, folder: Path) -> dict[str, Any]:
    """By backend: the median of rounds in ms, seconds to the first result, how far it is off."""
    file = folder / "network.onnx"
    onnx.save(with_weights(path), file)
    rows: dict[str, Any] = {}
    for backend, child in children.items():
        result = folder / f"{backend}.npy"
        try:
            asked = {"file": str(file), "result": str(result)}
            rows[backend] = child.ask(do="begin", **asked)
            found, wanted = np.load(result), np.load(folder / "onnxruntime.npy")
            apart = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
            rows[backend]["apart"] = float(apart)
        except ChildError as error:
            rows[backend] = {"failure": str(error)}
    in_turns(children, rows)
    return rows


def ratio(rows: dict[str, Any], own: str) -> float | None:
    """How many times as fast as ONNX Runtime."""
    peer, mine = rows["onnxruntime"]["ms"], rows[own]["ms"]
    return peer / mine if peer and mine else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names; all without")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backends", nargs="*", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument("--json")
    chosen = parser.parse_args()
    every = networks()
    names = [n for n in every if not chosen.only or any(w in n for w in chosen.only)]
    ours = [b for b in OURS if b in chosen.backends]
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        children = {
            b: Child(
                "bench.onnx_networks", logs / b, {ROLE: b, THREADS: str(chosen.threads)}, 900.0
            )
            for b in BACKENDS
            if b in chosen.backends or b == "onnxruntime"  # which the others are compared with
        }
        for name in names:
            print(name, file=sys.stderr, flush=True)
            found[name] = measured(children, every[name], logs)
            if chosen.json is not None:  # what is measured so far
                write_json({"machine": machine(True), "networks": found}, chosen.json)
        for child in children.values():
            child.close()
    lines = [
        [name, *(milliseconds(row["ms"]) for row in rows.values()),
         *(f"{r:.2f}" if (r := ratio(rows, b)) else "-" for b in ours),
         *(f"{rows[b].get('apart', float('nan')):.0e}" for b in ours)]
        for name, rows in found.items()
    ]  # fmt: skip
    columns = ["network", *children, *(f"ORT / {b}" for b in ours), *(f"{b} apart" for b in ours)]
    show(table("milliseconds", columns, lines))
    for own in ours:
        ratios = [r for rows in found.values() if (r := ratio(rows, own))]
        mean = f"{geometric_mean(ratios):.2f}" if ratios else "none ran"
        show(f"{own}, times as fast as ONNX Runtime: {mean}")
    show(*(f"{n}, {b}: {row['failure']}" for n, rows in found.items() for b, row in rows.items()
           if "failure" in row))  # fmt: skip
    return int(any(not rows[b].get("apart", 1.0) < EVEN for rows in found.values() for b in ours))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if ROLE in os.environ:
        answer(Session(os.environ[ROLE], int(os.environ[THREADS])), first_line)
    else:
        sys.exit(main())
