"""The corpus on a CUDA device, each program three times: python -m tests.gpu.corpus.on_device

python -m tests.gpu.corpus.on_device --only "softmax" --jobs 8
A program that eager itself does not run there is counted, and is no failure.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace

import torch
from torch.utils import _pytree as pytree

import weft
from tests.agree.checks import fresh
from tests.gpu.corpus.program import Program
from tests.gpu.corpus.table import GROUPS
from weft.cli.check import check, run_eager, run_reference
from weft.core.errors import SourceError

CALLS = 3  # launched, recorded where it is long enough, replayed


@dataclass
class Found:
    name: str
    failures: list[str] = field(default_factory=list)
    refused: str = ""  # why eager does not run it


def on_device(program: Program, device: str) -> Found:
    """Beside eager on the device; what the program makes inside is made there as well."""
    found = Found(program.name)
    with torch.backends.cudnn.flags(allow_tf32=False):
        return beside_eager(program, found, device)


def beside_eager(program: Program, found: Found, device: str) -> Found:
    torch.backends.cuda.matmul.allow_tf32 = False
    made = program.source()
    args = pytree.tree_map_only(torch.Tensor, lambda t: moved(t, device), made.args)
    source = replace(made.on(device), args=args)
    with torch.no_grad(), torch.device(device):
        try:
            truth = run_eager(source), run_reference(source)
        except SourceError as error:
            found.refused = error.message
            return found
        f = weft.compile(source.callable, target=device, fallback="error")
        for call in range(CALLS):
            try:
                verdicts = check(f(*fresh(source.args), **source.kwargs), *truth)
            except Exception as error:
                found.failures.append(f"call {call}: {type(error).__name__}: {error}")
                return found
            for i, verdict in enumerate(verdicts):
                if not verdict.passed:
                    told = verdict.reason or f"error {verdict.error:.1e} of {verdict.limit:.1e}"
                    found.failures.append(f"call {call}: result {i}: {told}")
    return found


def moved(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """The same numbers in the same strides: of what is strided or expanded `to` makes another."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    whole = tensor.detach().as_strided((count,), (1,), 0).to(device, copy=True)
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def examined(group: str, name: str, device: str) -> Found:
    return on_device(GROUPS[group][name], device)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.corpus.on_device")
    parser.add_argument("--only", default="", help="a pattern that names or groups match")
    parser.add_argument("--jobs", type=int, default=4, help="processes")
    parser.add_argument("--device", default="cuda")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print("the corpus needs a CUDA device here, and PyTorch finds none", file=sys.stderr)
        return 2
    names = [
        (group, name, chosen.device)
        for group, programs in GROUPS.items()
        for name in programs
        if re.search(chosen.only, name) or re.search(chosen.only, group)
    ]
    started, rows = time.perf_counter(), list[Found]()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(chosen.jobs, context) as pool:
        for done in as_completed([pool.submit(examined, *name) for name in names]):
            rows.append(row := done.result())
            for failure in row.failures[:3]:
                print(f"{row.name}: {failure}", flush=True)
    refused = [row for row in rows if row.refused]
    failed = sum(bool(row.failures) for row in rows)
    for row in refused:
        print(f"{row.name}: eager does not run it on {chosen.device}: {row.refused}")
    spent = time.perf_counter() - started
    told = f"{failed} FAILED" if failed else "passed"
    print(f"{len(rows)} programs in {spent:.0f} s, {len(refused)} not run by eager: {told}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
