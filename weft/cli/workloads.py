"""The workloads of `weft bench` (workloads.toml): a suite lists names, a name selects a program.

WORKLOADS["softmax 28x512x512"].text        # "nn.Softmax(dim=-1)(torch.randn(28,512,512))"
CUDA_WORKLOADS["matmul 4096 bf16"].text     # f32 is without TF32; bf16 where LLMs use it
"""

import re
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA: dict[str, Any] = tomllib.loads((Path(__file__).parent / "workloads.toml").read_text())
PROGRAMS: dict[str, dict[str, str]] = DATA["programs"]  # texts by group and by name
PARTS: dict[str, str] = DATA["parts"]


@dataclass(frozen=True)
class Workload:
    group: str
    text: str


def workload(name: str) -> Workload:
    """The program of a name, with the sizes in that name."""
    plain = name.removesuffix(" bf16")
    to = "" if name == plain else ".bfloat16()"
    sizes: list[str] = re.findall(r"\d+", plain)
    program = re.sub(r"\d+", "#", plain)
    group, text = next((g, texts[program]) for g, texts in PROGRAMS.items() if program in texts)
    x = f"torch.randn({','.join(sizes)}){to}"
    return Workload(group, text.strip().format(*sizes, x=x, to=to, **PARTS))


def suite(names: str) -> dict[str, Workload]:
    return {name: workload(name) for name in re.split("; |\n", names.strip())}


def in_turn(workloads: dict[str, Workload]) -> dict[str, Workload]:
    """Orders workloads with their groups in turn: a bench that runs out of time has seen each."""
    groups = [[n for n, w in workloads.items() if w.group == group] for group in PROGRAMS]
    return {n: workloads[n] for turn in zip_longest(*groups) for n in turn if n is not None}


WORKLOADS, CUDA_WORKLOADS = suite(DATA["cpu"]), in_turn(suite(DATA["cuda"]))
