"""Run a kernel's text on the CPU, checked and counted.

report = simulate(source, "scale", grid=4, block=256, args=[x, y, 1024])   # y is changed in place
assert not report.faults, str(report)
"""

import json
import math
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.errors import WeftError
from weft.sim.build import Program, as_cuda, build, kernels_of, lines_of
from weft.sim.report import Access, Fault, SimReport, message

ALIGNMENT = 256
MOST_THREADS = 1024
MOST_SHARED = 227 * 1024  # of sm_90; others have less
SPACES = ("global", "shared")  # by the numbers in runtime/state.h
KINDS = ("load", "store", "atomic")
Size = int | tuple[int, ...]


@dataclass(frozen=True)
class TensorMap:
    """A tensor map of an array: the box that TMA copies, and its swizzle."""

    array: np.ndarray
    box: tuple[int, ...]
    swizzle: int = 0  # bytes: 0, 32, 64 or 128


Argument = np.ndarray | TensorMap | np.generic | int | float


@dataclass
class Job:
    """The launch as text for the simulator's program, and the arrays that it names."""

    lines: list[str] = field(default_factory=list)
    arrays: dict[int, np.ndarray] = field(default_factory=dict)

    def number(self, array: np.ndarray, name: str) -> int:
        """The number of an array's buffer; one array is one buffer, however often it is given."""
        if id(array) not in self.arrays:
            if not array.flags.c_contiguous:
                raise WeftError(f"argument {name} of a simulated kernel must be contiguous")
            self.lines.append(f"buffer {name} {array.nbytes}")
            self.arrays[id(array)] = array
        return list(self.arrays).index(id(array))

    def add(self, argument: Argument, name: str) -> None:
        if isinstance(argument, np.ndarray):
            number = self.number(argument, name)
            self.lines.append(f"pointer {number}")
        elif isinstance(argument, TensorMap):
            whole = argument.array.base  # of a view, the array it is of
            memory = whole if isinstance(whole, np.ndarray) else argument.array
            self.lines.append(map_line(argument, self.number(memory, name)))
        else:
            own = isinstance(argument, np.generic)
            dtype = None if own else np.int32 if isinstance(argument, int) else np.float32
            self.lines.append(f"value {np.asarray(argument, dtype).tobytes().hex()}")


def map_line(map: TensorMap, buffer: int) -> str:
    """Sizes, box and strides of an array, innermost first and padded to three dimensions."""
    array = map.array
    if not 1 <= array.ndim <= 3 or len(map.box) != array.ndim:
        raise WeftError("a tensor map has one to three dimensions, and a box of as many")
    if map.box[-1] * array.itemsize % 16 or max(map.box) > 256:
        raise WeftError(f"a box of {map.box}: its rows are multiples of 16 bytes, its sides <= 256")
    if any(stride % 16 for stride in array.strides[:-1]):
        raise WeftError(f"a tensor map of {array.shape}: rows begin at multiples of 16 bytes")
    if map.swizzle and map.box[-1] * array.itemsize > map.swizzle:
        raise WeftError(f"a box of {map.box}: rows of a swizzle of {map.swizzle} bytes are longer")
    dims = [*zip(array.shape[::-1], map.box[::-1], array.strides[::-1], strict=True)]
    dims += [(1, 1, 0)] * (3 - len(dims))
    words = [buffer, array.ndim, array.itemsize, map.swizzle, *[n for dim in dims for n in dim]]
    return " ".join(["map", *(str(word) for word in words)])


def simulate(
    source: str,
    kernel: str,
    grid: Size,
    block: Size,
    args: Sequence[Argument],
    shared_bytes: int = 0,
    arch: str = "sm_90a",
    warp: int = 32,
    sample: int = 0,
    seconds: int = 60,
) -> SimReport:
    """Run `kernel` of `source` over a grid of blocks, one after another; arrays change in place.

    A Python int is an i32 and a float an f32; NumPy scalars keep their type. `shared_bytes` are
    dynamic. Of a large grid a `sample` of blocks, spread evenly, shows faults and costs, and leaves
    results in part. A launch that takes longer than `seconds` is a fault.
    """
    source = as_cuda(source)
    kernels = kernels_of(source)
    if kernel not in kernels:
        raise WeftError(f"the text has no kernel {kernel}; it has {', '.join(kernels) or 'none'}")
    names = kernels[kernel]
    if len(names) != len(args):
        raise WeftError(f"kernel {kernel} takes {len(names)} arguments; {len(args)} were given")
    check_limits(kernel, grid, block, shared_bytes)
    program = build(source, arch)
    job = Job([f"kernel {kernel}", sizes("grid", grid), sizes("block", block)])
    job.lines += [f"warp {warp}", f"sample {sample}", f"seconds {seconds}"]
    job.lines += [f"grain {program.grain}"]
    job.lines += [f"dynamic {shared_bytes}"] * (shared_bytes > 0)
    for kind, function, name, at, size in program.variables:
        of_another = function in kernels and function != kernel
        job.lines.append(f"{'gap' if of_another else kind} {name} {at} {size}")
    for argument, name in zip(args, names, strict=True):
        job.add(argument, name)
    return readable(launch(program, job, seconds), program, source.splitlines())


def sizes(name: str, size: Size) -> str:
    return " ".join([name, *map(str, triple(size))])


def check_limits(kernel: str, grid: Size, block: Size, shared_bytes: int) -> None:
    """WeftError for a launch that no NVIDIA GPU accepts."""
    threads = math.prod(triple(block))
    if not 0 < threads <= MOST_THREADS or triple(block)[2] > 64:
        raise WeftError(f"kernel {kernel}: a block has 1 to {MOST_THREADS} threads, not {block}")
    if min(triple(grid)) < 1 or max(triple(grid)[1:]) > 65535:
        raise WeftError(f"kernel {kernel}: a grid of {grid}: 1 or more, y and z at most 65535")
    if shared_bytes > MOST_SHARED:
        raise WeftError(
            f"kernel {kernel}: {shared_bytes} bytes of shared memory; {MOST_SHARED} at most"
        )


def triple(size: Size) -> tuple[int, int, int]:
    x, y, z = (*((size,) if isinstance(size, int) else size), 1, 1)[:3]
    return x, y, z


def launch(program: Program, job: Job, seconds: int) -> dict[str, Any]:
    """Run the program over copies of the arrays, and take back what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        data, text, out = Path(folder, "data"), Path(folder, "job"), Path(folder, "report")
        text.write_text("\n".join(job.lines) + "\n")
        with data.open("wb") as file:
            for array in job.arrays.values():
                file.write(array.tobytes() + bytes(-array.nbytes % ALIGNMENT))
        try:  # it ends by itself after `seconds`, unless it cannot
            done = subprocess.run(
                [program.path, text, data, out],
                capture_output=True,
                text=True,
                timeout=seconds + 60,
            )
        except subprocess.TimeoutExpired as e:
            raise WeftError(f"cannot simulate the kernel: no end after {e.timeout:.0f} s") from e
        if done.returncode != 0:
            raise WeftError(f"cannot simulate the kernel: {done.stderr.strip() or done.returncode}")
        read_back(data.read_bytes(), job)
        return json.loads(out.read_text())


def read_back(data: bytes, job: Job) -> None:
    at = 0
    for array in job.arrays.values():
        part = data[at : at + array.nbytes]
        if array.flags.writeable:
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(part, np.uint8)
        at += array.nbytes + -array.nbytes % ALIGNMENT


def readable(found: dict[str, Any], program: Program, text: list[str]) -> SimReport:
    """The report with lines of the kernel for addresses of the program."""
    rows = [*found["faults"], *found["accesses"]]
    addresses = {row[key] for row in rows for key in ("pc", "other") if row.get(key)}
    lines = lines_of(program, sorted(addresses)) if addresses else {}
    lines[0] = 0

    def words(line: int) -> str:
        return text[line - 1].strip() if 0 < line <= len(text) else ""

    def fault(row: dict[str, Any]) -> Fault:
        line, other = lines[row["pc"]], lines[row["other"]]
        if row["kind"] in ("hang", "crash"):
            line, other = line or other, 0
        by = f"line {other}, thread {row['other_thread']}" if other else "a thread that has ended"
        says = message(row["kind"], row["where"], row["offset"], by)
        return Fault(row["kind"], line, words(line), says, tuple(row["block"]), row["thread"],
                     row["count"], other or None)  # fmt: skip

    def access(place: tuple[int, int, int, int], parts: list[dict[str, Any]]) -> Access:
        line, space, kind, size = place
        sums = [sum(part[name] for part in parts) for name in ("requests", "transactions", "ideal")]
        return Access(line, words(line), SPACES[space], KINDS[kind], size, *sums)

    faults: dict[tuple[str, int, int | None], Fault] = {}
    for new in map(fault, found["faults"]):
        if new.kind == "divergence" and new.line == new.other_line:
            continue  # copies of one barrier that the compiler made
        key = (new.kind, new.line, new.other_line)
        known = faults.get(key, replace(new, count=0))
        faults[key] = replace(known, count=known.count + new.count)
    places: dict[tuple[int, int, int, int], list[dict[str, Any]]] = {}
    for row in found["accesses"]:
        place = (lines[row["pc"]], row["space"], row["kind"], row["bytes"])
        places.setdefault(place, []).append(row)
    accesses = [access(place, places[place]) for place in sorted(places)]
    return SimReport(tuple(faults.values()), tuple(accesses))
