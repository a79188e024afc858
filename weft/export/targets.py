"""The targets of an export, and a captured program's code for each.

targets = targets_of("cpu:avx2,cpu:avx512")     # or "sm_80,sm_90a": CPUs, or GPUs
codes = make_codes(captured, options, targets)  # UnsupportedOpError lists ops that have no code
"""

from collections.abc import Mapping
from dataclasses import replace

from weft.core.errors import WeftError, choice
from weft.export.code import Code, Isa, make_code
from weft.export.cuda import make_cuda_code
from weft.frontend.graph import Captured
from weft.options import Options
from weft.runtime.compiler import ISAS
from weft.targets.cpu import CPUS, isa_name
from weft.targets.gpu import GPUS

V3 = ("avx2", "fma", "bmi", "bmi2")
V4 = (*V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
FEATURES = {"avx2": V3, "avx512": V4, "avx512_bf16": (*V4, "avx512bf16")}
BEST_FIRST = ("avx512_bf16", "avx512", "avx2", "neon", "plain")
ARCHS = tuple(gpu.arch for gpu in GPUS.values() if gpu.language == "cuda")
KNOWN = ("cpu", *(f"cpu:{name}" for name in BEST_FIRST), *(f"cuda:{arch}" for arch in ARCHS))


def isa_of(name: str) -> Isa:
    """The instruction set, or GPU, called that; "cpu" is that of this machine."""
    if name in ARCHS:
        digits = name.removeprefix("sm_").rstrip("a")
        return Isa(name, "", (), (), (int(digits[:-1]), int(digits[-1])))
    if name in FEATURES:
        return Isa(name, "__x86_64__", ISAS[CPUS[name].isa], FEATURES[name])
    return Isa(name, "__aarch64__" if name == "neon" else "", (), ())


def targets_of(text: str) -> dict[str, Isa]:
    """Targets by name, of a list such as "cpu:avx2,cpu:avx512" or "sm_80,sm_90a", best first."""
    found: dict[str, Isa] = {}
    for target in text.split(","):
        own = f"cpu:{isa_name()}" if target in ("cpu", "auto") else target
        own = f"cuda:{own}" if own in ARCHS else own
        name = choice("target of an export", own, KNOWN).partition(":")[2]
        if any(isa.name == name for isa in found.values()):
            raise WeftError(f"--target {text} has {name} twice")
        found["cpu" if target == "auto" else target if name not in ARCHS else own] = isa_of(name)
    if len({isa.capability is None for isa in found.values()}) > 1:
        raise WeftError(f"--target {text}: a model is for CPUs or for GPUs: export it twice")
    order = (*BEST_FIRST, *ARCHS)
    return dict(sorted(found.items(), key=lambda item: order.index(item[1].name)))


def make_codes(captured: Captured, options: Options, targets: Mapping[str, Isa]) -> list[Code]:
    """A captured program for each of the targets."""
    chosen = ((replace(options, target=name, fallback="aten"), t) for name, t in targets.items())
    return [
        make_cuda_code(captured, own, isa) if isa.capability else make_code(captured, own, isa)
        for own, isa in chosen
    ]
