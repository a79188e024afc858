"""The keywords of weft.compile, checked, and the target that a name stands for.

options = Options(target="cpu", fuse="none")      # WeftError for a value nobody knows
find_target(options.target).lanes(4)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from weft.config import config
from weft.core.errors import WeftError, choice
from weft.targets.cpu import CPU, CPUS, host
from weft.targets.gpu import GPU, GPUS
from weft.targets.nvidia import runs_on

Fallback = Literal["aten", "error"]
Fuse = Literal["none", "greedy", "all"]
Tune = Literal["off", "cached", "now"]
Search = Literal["on", "off", "deep"]
Random = Literal["fused", "eager"]

# Those with a name of their own. Another CPU's code runs here as well: vectors do anywhere.
TARGETS: dict[str, CPU | GPU] = {**{f"cpu:{isa}": cpu for isa, cpu in CPUS.items()}, **GPUS}
KNOWN = ("auto", "cpu", "cuda", *TARGETS)


@dataclass(frozen=True)
class Options:
    """The keywords of weft.compile."""

    target: str = "auto"
    fuse: Fuse = "greedy"
    fallback: Fallback = "aten"
    dynamic: bool | None = None
    freeze: bool = False  # parameters and buffers change only where torch's versions tell
    drop: bool = field(default=False, repr=False)  # what that packs lies in a file then
    passes: str = ""  # "-stage_inputs,+join_collectives": left out, or asked for; or by number
    schedule: str = ""  # "softmax.vectors = 4": choices of its kernels, a line for each
    tune: Tune = "cached"
    search: Search = "off"
    random: Random = "fused"
    verbose: int = field(default=0, compare=False, repr=False)  # these change no code
    profile: bool = field(default=False, compare=False, repr=False)
    simulate: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Options).items():
            value = getattr(self, name)
            if get_origin(kind) is Literal:
                choice(name, value, get_args(kind))
            elif not isinstance(value, kind):
                raise WeftError(f"{name} cannot be {value!r}")
        if not re.fullmatch(r"([-+]\w+(,[-+]\w+)*)?", self.passes):
            told = "-stage_inputs leaves that pass out, -stage_inputs,-021 two; + asks for one"
            raise WeftError(f"passes {self.passes!r}: {told}")
        target = find_target(self.target)
        if self.drop and not (self.freeze and isinstance(target, CPU)):
            raise WeftError("drop=True is for freeze=True on CPUs: without, nothing is kept packed")
        if self.simulate and not (isinstance(target, GPU) and target.simulated):
            known = ", ".join(name for name, gpu in GPUS.items() if gpu.simulated)
            raise WeftError(f"simulate is for {known}; not for {self.target}")

    def on(self, place: torch.device) -> Options:
        """With the target that it stands for where a program's tensors are."""
        return replace(self, target=target_name(self.target, place))

    @property
    def frees_sizes(self) -> bool | None:
        """`dynamic`; a GPU's programs are for one size each, unless more is asked for."""
        on_gpu = isinstance(find_target(self.target), GPU)
        return False if self.dynamic is None and on_gpu else self.dynamic

    @property
    def left_out(self) -> list[str]:
        """The schedule passes that do not run, each by its name or its number."""
        return [name[1:] for name in self.passes.split(",") if name.startswith("-")]

    @property
    def asked(self) -> list[str]:
        """Those that run because they are asked for."""
        return [name[1:] for name in self.passes.split(",") if name.startswith("+")]

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Options:
        """From names that may be wrong."""
        known = [f.name for f in fields(cls)]
        for name in options:
            choice("option", name, known)
        return cls(**options)


def target_name(name: str, place: torch.device) -> str:
    """What "auto" and "cuda" stand for where a program's tensors are; all else is itself."""
    name = config.target if name == "auto" else name
    if name == "auto":
        name = "cuda" if place.type == "cuda" else "cpu"
    if name != "cuda":
        return name
    if not torch.cuda.is_available():
        named = ", ".join(n for n in GPUS if n.startswith("cuda:"))
        raise WeftError(f"PyTorch finds no CUDA device to choose a target for: name one of {named}")
    device = place.index if place.type == "cuda" else torch.cuda.current_device()
    found = torch.cuda.get_device_capability(device)
    for known, gpu in GPUS.items():
        if gpu.language == "cuda" and runs_on(gpu.arch, found):
            return known
    device_name, number = torch.cuda.get_device_name(device), "{}.{}".format(*found)
    known = ", ".join(KNOWN)
    raise WeftError(f"no target is for {device_name}, of compute capability {number}: {known}")


def find_target(name: str) -> CPU | GPU:
    """The target of that name; WeftError for one weft does not know."""
    name = target_name(name, torch.device("cpu"))
    return host() if name == "cpu" else TARGETS[choice("target", name, KNOWN)]
