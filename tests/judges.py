"""Suites that nobody here wrote, one by one: python -m tests.judges [--only WORDS] [--out FILE].

Each is a module of tests/conformance that prints what is right, of how many. The table of all, with
what others reach on the same suite, is docs/coverage.md (`make judges`). A judge that is not run
again keeps its row, with the commit it was run on.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "coverage.md"
HEAD = """# Coverage

Suites that nobody here wrote, by `make judges`: how many of their cases are right, beside what
others reach. A part of each, fixed and fast, is in `make test`.

| suite | right | of | others | command | commit |
|---|---|---|---|---|---|
"""
COUNT = r"(?P<right>\d+) of (?P<of>\d+)"


@dataclass(frozen=True)
class Judge:
    """A command, and where its output says what is right, of how many."""

    suite: str
    command: str
    says: str = COUNT
    others: str = ""

    @property
    def row(self) -> str:
        return f"| {self.suite} |"


def _onnx(kind: str, what: str, others: str = "", how: str = "") -> Judge:
    says = rf"^ *{kind} +(?P<of>\d+) +(?P<right>\d+) "
    through = ", through weft.compile" if how else ""
    return Judge(f"ONNX, {what}{through}", f"onnx --kinds {kind}{how}", says, others)


def _training(kind: str, what: str) -> Judge:
    says = r"(?P<of>\d+) cases, (?P<wrong>\d+) that fail where Inductor does not"
    command = f"training --kinds {kind} --results /dev/null"
    return Judge(what, command, says, "counted wrong: what Inductor passes")


NODES = "ONNX's reference 1,860, ONNX Runtime 1.31 1,397"
COMPILED = " --how compile"
JUDGES = (
    _onnx("Node", "node tests", NODES),
    _onnx("PyTorchConverted", "PyTorch's layers"),
    _onnx("PyTorchOperator", "PyTorch's operators"),
    _onnx("Simple", "simple models"),
    _onnx("Real", "networks"),
    _onnx("Node", "every tenth node test", "", COMPILED + " --every 10"),
    _onnx("Real", "networks", "", COMPILED),
    Judge("NNSmith's random models of ONNX, through weft.compile", "nnsmith"),
    Judge("JAX's harness of primitives, f32, i32 and bool", "jax"),
    Judge("MLIR's and LLVM's tools on tests/agree", "mlir"),
    Judge("Triton's interpreter and compiler on tests/agree", "triton"),
    Judge("exported C on tests/agree, bit for bit", "export", r"(?P<right>\d+) same"),
    _training("hops", "torch's hop_db, with gradients"),
    _training("optimisers", "torch's optim_db"),
    _training("modules", "torch's module_db in train mode"),
    Judge("torch's OpInfo, float32: native operators", "native", COUNT, "446 on 22 November"),
)


def judged(judge: Judge) -> tuple[int, int]:
    """Right, and of how many; ValueError where the judge does not say."""
    command = [sys.executable, "-W", "ignore", "-m", *f"tests.conformance.{judge.command}".split()]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    told, found = ran.stdout, list(re.finditer(judge.says, ran.stdout, re.MULTILINE))
    if not found:
        raise ValueError(f"{judge.command} says no result: {(told + ran.stderr)[-600:]!r}")
    groups = {key: int(n) for key, n in found[-1].groupdict().items()}
    if "wrong" in groups:
        groups["right"] = groups["of"] - groups["wrong"]
    others = re.findall(r"(\d+) (?:other|failed|refused)", told.splitlines()[-1])
    return groups["right"], groups.get("of", groups["right"] + sum(map(int, others)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.judges", description=__doc__)
    parser.add_argument("--only", default="", help="commands that hold one of these, by commas")
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    before = given.out.read_text().splitlines() if given.out.exists() else []
    rows = {j.row: next((r for r in before if r.startswith(j.row)), "") for j in JUDGES}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    for judge in JUDGES:
        if any(word in judge.command for word in given.only.split(",")):
            right, of = judged(judge)
            cells = f"{right:,}", f"{of:,}", judge.others, f"`tests.conformance.{judge.command}`"
            rows[judge.row] = f"{judge.row} {' | '.join(cells)} | {commit} |"
            print(rows[judge.row], flush=True)
            given.out.write_text(HEAD + "\n".join(filter(None, rows.values())) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
