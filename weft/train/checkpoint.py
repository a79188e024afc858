"""A run's state as one safetensors file, written whole or not at all.

save("run.safetensors", state)
load("run.safetensors", state)      # the next steps are those of a run that never stopped

A new file is written beside the old one, synchronised, and renamed over it: whenever the process or
the machine ends, one of the two stands under the name. A checksum tells a file that changed since.
"""

import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch import distributed as dist

from weft.core.errors import WeftError
from weft.train.finite import shown
from weft.train.state import State, ranks


def save(path: str | Path, state: State) -> None:
    """Writes the checkpoint (of several processes, the first one does); WeftError if it cannot."""
    from safetensors.torch import save as encoded

    path, (rank, count) = Path(path), ranks()
    drawn: list[Any] = [random_states()]
    if count > 1:
        drawn = [None] * count
        dist.all_gather_object(drawn, random_states())
    if rank != 0:
        return
    tensors = {name: tensor.contiguous().cpu() for name, tensor in state.tensors().items()}
    for i, own in enumerate(drawn):
        tensors |= {f"random.{i}.{device}": numbers for device, numbers in own.items()}
    facts = {"step": state.step, "place": state.place, "processes": count, "sum": summed(tensors)}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary, encoded(tensors, {"weft": json.dumps(facts)}))
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)  # the new name as well
        os.close(folder)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        why = f"cannot write the checkpoint {path}, which is as it was: {error.strerror}"
        raise WeftError(why) from None


def write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def load(path: str | Path, state: State) -> None:
    """Makes `state` that of the checkpoint, random numbers included.

    WeftError for a file that is missing, damaged, or of another model, optimiser or number of
    processes; `state` is then as it was.
    """
    from safetensors import SafetensorError, safe_open

    def refuse(why: str) -> NoReturn:
        raise WeftError(f"cannot resume from {path}: {why}")

    try:
        with safe_open(path, "pt") as file:  # type: ignore[no-untyped-call]
            stored: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = json.loads((file.metadata() or {}).get("weft", "{}"))
    except OSError as error:
        refuse(error.strerror or str(error))
    except SafetensorError as error:
        refuse(f"the file is damaged ({error})")
    if not facts:
        refuse("it is no checkpoint of weft")
    if summed(stored) != facts["sum"]:
        refuse("the file is damaged (its checksum is another)")
    rank, count = ranks()
    if facts["processes"] != count:
        refuse(f"it is of {facts['processes']} processes, and this run has {count}")
    own = state.tensors()
    wanted = {n: shown(t) for n, t in own.items()}
    found = {n: shown(t) for n, t in stored.items() if not n.startswith("random.")}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            refuse(f"{name} is {found.get(name, 'missing')} there, {wanted.get(name, 'none')} here")
    for name, tensor in own.items():
        tensor.copy_(stored[name])
    state.step, state.place = facts["step"], facts["place"]
    torch.set_rng_state(stored[f"random.{rank}.cpu"])
    for i in range(torch.cuda.device_count()):
        if f"random.{rank}.cuda{i}" in stored:
            torch.cuda.set_rng_state(stored[f"random.{rank}.cuda{i}"], i)


def random_states() -> dict[str, Tensor]:
    gpus = enumerate(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])
    return {"cpu": torch.get_rng_state(), **{f"cuda{i}": numbers for i, numbers in gpus}}


def summed(tensors: dict[str, Tensor]) -> int:
    """A checksum over names and bytes."""
    found = 0
    for name in sorted(tensors):
        data: Any = tensors[name].reshape(-1).view(torch.uint8).numpy()
        found = zlib.crc32(data, zlib.crc32(name.encode(), found))
    return found
