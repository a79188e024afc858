"""The keywords of weft.compile, checked, and the target that a name stands for.

options = Options(target="cpu", fuse="none")      # WeftError for a value nobody knows
find_target(options.target).lanes(4)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from weft.config import config
from weft.core.errors import WeftError
from weft.targets.cpu import CPU, CPUS, host

Fallback = Literal["aten", "error"]
Fuse = Literal["none", "greedy", "all"]
KINDS = {"target": str, "dynamic": (bool, type(None)), "verbose": int, "profile": bool}


@dataclass(frozen=True)
class Options:
    """The keywords of weft.compile."""

    target: str = "auto"
    fuse: Fuse = "greedy"
    fallback: Fallback = "aten"
    dynamic: bool | None = None
    verbose: int = field(default=0, compare=False, repr=False)  # these two change no code
    profile: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, kinds in KINDS.items():
            if not isinstance(getattr(self, name), kinds):
                raise WeftError(f"{name} cannot be {getattr(self, name)!r}")
        for name, known in (("fuse", get_args(Fuse)), ("fallback", get_args(Fallback))):
            if getattr(self, name) not in known:
                wanted = ", ".join(known)
                raise WeftError(f"unknown {name} {getattr(self, name)!r}: one of {wanted}")
        find_target(self.target)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Options:
        """From names that may be wrong."""
        known = [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                raise WeftError(f"unknown option {name!r}: one of {', '.join(known)}")
        return cls(**options)


def find_target(name: str) -> CPU:
    """The target of that name; WeftError for one weft does not know."""
    name = config.target if name == "auto" else name
    if name == "cpu":
        return host()
    if name.startswith("cpu:") and name[4:] in CPUS:  # another CPU's code; vectors run anywhere
        return CPUS[name[4:]]
    known = ", ".join(f"cpu:{isa}" for isa in CPUS)
    raise WeftError(f"unknown target {name!r}: one of auto, cpu, {known}")
