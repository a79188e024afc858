"""Exports the programs of tests/agree, and model families, and compares them bit for bit.

python -m tests.conformance.export [--only WORDS] [--target cpu:avx2] [--models]

Each is compiled by weft, exported as C, built by make with all warnings as errors, and called: its
outputs, and the arguments that it writes, have the bits that weft gives in-process. For a GPU, such
as sm_90a, kernels run in the simulator, behind a driver that checks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tests.agree.test_programs import PROGRAMS
from tests.export.fake_device import FakeDevice
from tests.export.same import differs
from weft.core.errors import WeftError

Row = tuple[str, Any, Any, Any]  # name, function, arguments by position and by name


def programs() -> Iterator[Row]:
    for case in PROGRAMS:
        yield case.name, case.fn, case.make(), {}


def models() -> Iterator[Row]:
    from tests.models.test_models import MODELS, build

    for make in MODELS:
        model, kwargs = build(make)
        yield make.__name__, model.eval(), [], kwargs


def verdict(row: Row, target: str) -> tuple[str, str]:
    """same, other, refused (by weft, with its reason) or failed."""
    _, fn, args, kwargs = row
    with tempfile.TemporaryDirectory() as folder:
        try:
            path, arch = Path(folder), target.removeprefix("cuda:")
            if arch.startswith("sm_"):
                told = FakeDevice(path, arch).differs(fn, args, kwargs, path / "m")
            else:
                told = differs(fn, args, kwargs, path / "m", target)
        except WeftError as error:
            return "refused", str(error).split("\n")[0]
        except Exception as error:
            return "failed", f"{type(error).__name__}: {error}"
    return ("other", told) if told else ("same", "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.export", description=__doc__)
    parser.add_argument("--only", default="", help="names that hold one of these, by commas")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--models", action="store_true", help="model families alone")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for row in models() if given.models else programs():
        if any(word in row[0] for word in given.only.split(",")):
            torch.compiler.reset()
            word, told = verdict(row, given.target)
            counts[word] += 1
            if word != "same":
                print(f"{row[0]} {word}: {told}"[:600], flush=True)
    print(", ".join(f"{n} {word}" for word, n in counts.items()) + f" on {given.target}")
    return int(counts["other"] + counts["failed"] > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
