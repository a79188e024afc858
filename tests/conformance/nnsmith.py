"""Random models of NNSmith as ONNX: python -m tests.conformance.nnsmith [--models N] [--first SEED]

NNSmith (Liu et al., ASPLOS 2023) draws graphs of 5 to 20 operators whose shapes fit, by a solver,
and inputs that keep them off NaN. Each is exported by torch, read by weft.from_onnx, and run by
torch and through weft.compile, beside ONNX Runtime. Expected is what ONNX's reference computes; a
model that the reference does not run is skipped. Prints each difference; ends with 1 for any.
"""

from __future__ import annotations

import argparse
import functools
import logging
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import weft

DTYPES = ("float32", "float64", "int32", "int64", "bool")
LEFT_OUT = ("Reshape", "Flatten")  # on which NNSmith's solver of shapes fails
CLOSE = 1e-3  # relative to 1 or to the value: after 20 operators in f32
Arrays = Sequence[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Sample:
    """A model, what it is given, and what ONNX's reference computes of that."""

    proto: Any
    inputs: Arrays
    expected: Arrays


def sample(seed: int) -> Sample | str:
    """The model of this seed, or why there is none."""
    from nnsmith.abstract.dtype import DType
    from nnsmith.graph_gen import model_gen
    from nnsmith.materialize import Model
    from onnx.reference import ReferenceEvaluator

    kind = Model.init("onnx")
    ops = [o for o in kind.operators() if o.__name__ not in LEFT_OUT]
    dtypes = [d for name, d in DType.__members__.items() if name in DTYPES]
    exporter = functools.partial(torch.onnx.export, dynamo=False)  # the other traces its checks
    seeded(seed)
    try:
        graph = model_gen(ops, seed=seed, max_nodes=5 + seed % 16, dtype_choices=dtypes)
        model = kind.from_gir(graph.make_concrete())
        with patch("torch.onnx.export", exporter):
            model.refine_weights()
        given = model.make_oracle().input
        inputs = [np.asarray(given[i.name]) for i in model.onnx_model.graph.input]
        named = {i.name: x for i, x in zip(model.onnx_model.graph.input, inputs, strict=True)}
        expected = ReferenceEvaluator(model.onnx_model).run(None, named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return Sample(model.onnx_model, inputs, [np.asarray(e) for e in expected])


def seeded(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def by_weft(case: Sample, compiled: bool) -> Arrays:
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(case.proto, path)
        module = weft.from_onnx(path)
    run: Callable[..., Any] = weft.compile(module) if compiled else module
    out = run(*(torch.from_numpy(x.copy()) for x in case.inputs))
    return [t.detach().numpy() for t in (out if isinstance(out, (tuple, list)) else (out,))]


def by_onnx_runtime(case: Sample) -> Arrays:
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(case.proto.SerializeToString())
    names = [i.name for i in case.proto.graph.input]
    return session.run(None, dict(zip(names, case.inputs, strict=True)))


def problem(run: Callable[[Sample], Arrays], case: Sample) -> str:
    """ "" where each result has the dtype, the shape and the values expected."""
    try:
        found = run(case)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    if len(found) != len(case.expected):
        return f"{len(found)} results of {len(case.expected)}"
    for i, (f, e) in enumerate(zip(map(np.asarray, found), case.expected, strict=True)):
        if (f.dtype, f.shape) != (e.dtype, e.shape):
            return f"result {i} is {f.dtype}{f.shape}, not {e.dtype}{e.shape}"
        a, b = f.astype(np.float64), e.astype(np.float64)
        if not np.allclose(a, b, CLOSE, CLOSE, equal_nan=True):
            return f"result {i} differs by {np.nanmax(np.abs(a - b)):.2e}"
    return ""


RUNS: dict[str, Callable[[Sample], Arrays]] = {
    "from_onnx": functools.partial(by_weft, compiled=False),
    "compiled": functools.partial(by_weft, compiled=True),
    "ONNX Runtime": by_onnx_runtime,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.nnsmith", description=__doc__
    )
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    right, models = Counter[str](), 0
    for seed in range(chosen.first, chosen.first + chosen.models):
        case = sample(seed)
        if isinstance(case, str):
            continue
        models += 1
        for name, run in RUNS.items():
            why = problem(run, case)
            right[name] += not why
            if why and run is not by_onnx_runtime:
                print(f"seed {seed}, {name}: {why}", flush=True)
    print(f"ONNX Runtime is right on {right['ONNX Runtime']}, from_onnx on {right['from_onnx']}")
    print(f"{right['compiled']} of {models} models, through weft.compile")
    return int(min(right["from_onnx"], right["compiled"]) < models)


if __name__ == "__main__":
    sys.exit(main())
