"""Exported programs give what weft gives in-process, bit for bit, however they are built."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agree.test_programs import PROGRAMS
from tests.export.library import Library, Refused, export, exported, make, tensors_in
from tests.export.programs import Counts, Net, ids, sized, source, views
from tests.export.same import bits, compared, differs, in_process, own, unlike
from weft.core.errors import CaptureError

HERE = Path(__file__).parent
CORPUS = {case.name: case for case in PROGRAMS}
SOME = "in_place_row output_is_input searches channels_last empty_sums views_bool cross_entropy"
BOTH = "cpu:avx2,cpu:avx512"


def with_driver(folder: Path, cc: str = "gcc", flags: str = "") -> Path:
    """The driver, linked with the model's static library."""
    make(folder, "libm.a", f"CC={cc}", f"CFLAGS=-Werror {flags}")
    program = folder / "driver"
    own_flags = f"-std=gnu11 -Wall -Wextra -Werror {flags} -I{folder}".split()
    made = [cc, *own_flags, str(HERE / "driver.c"), str(folder / "libm.a"), "-lm", "-pthread"]
    done = subprocess.run([*made, "-o", str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def drive(
    folder: Path, inputs: list[torch.Tensor], *more: str, runner: str = ""
) -> tuple[str, list[bytes]]:
    """What the driver prints, and its outputs: with no environment, in an empty folder."""
    io, empty = folder / "io", folder / "empty"
    for path in (io, empty):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    for i, t in enumerate(inputs):
        (io / f"in{i}").write_bytes(bits(t))
    weights = folder / "weights.safetensors"
    command = ["env", "-i", *runner.split(), str(folder / "driver"), str(weights), str(io), *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=empty)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, [p.read_bytes() for p in sorted(io.glob("out*"))]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, torch.Tensor, Path]]:
    """Net exported for two instruction sets, its input, and what is built of it."""
    folder = tmp_path_factory.mktemp("net") / "m"
    export([source(Net().eval(), ids())], folder, BOTH)
    make(folder, "libm.so")
    with_driver(folder)
    yield folder, ids(), folder / "libm.so"


@pytest.mark.parametrize("name", [n for n in SOME.split() if n in CORPUS])
def test_programs_of_the_corpus(name: str, tmp_path: Path) -> None:
    case = CORPUS[name]
    assert differs(case.fn, case.make(), {}, tmp_path / "m") == ""


def test_a_difference_is_seen(net: tuple[Path, torch.Tensor, Path]) -> None:
    folder, x, _ = net
    library = Library(folder)
    expected, _ = in_process(Net().eval(), [x], {}, f"cpu:{library.isa}")
    for threads in (1, 3):
        assert bits(library.run([x], threads=threads)[0][1]) == bits(expected[0])
    expected[0].view(-1)[3] += 1e-6
    assert compared(library, [x], expected, [x]) == "0: other bits"


def test_it_runs_alone(net: tuple[Path, torch.Tensor, Path]) -> None:
    """In an empty folder, without an environment, by two threads with instances of their own."""
    folder, x, library = net
    told, outputs = drive(folder, [x], "2", "2")
    isa = told.split()[0]
    expected, _ = in_process(Net().eval(), [x], {}, f"cpu:{isa}")
    assert outputs == [bits(expected[0])]
    needed = subprocess.run(["ldd", str(library)], capture_output=True, text=True).stdout
    names = {line.split()[0].split("/")[-1].split(".")[0] for line in needed.splitlines()}
    assert names <= {"linux-vdso", "libc", "libm", "libpthread", "ld-linux-x86-64"}


def test_every_symbol_has_the_models_name(net: tuple[Path, torch.Tensor, Path]) -> None:
    folder = net[0]
    told = subprocess.run(
        ["nm", "-g", "--defined-only", str(folder / "libm.a")], capture_output=True, text=True
    )
    symbols = [line.split()[-1] for line in told.stdout.splitlines() if len(line.split()) == 3]
    assert len(symbols) > 20 and all(s.startswith("m_") for s in symbols)


SANITIZED = "-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all"


@pytest.mark.parametrize(("cc", "flags"), [("clang", ""), ("gcc", SANITIZED)])
def test_compilers_and_sanitizers(cc: str, flags: str, tmp_path: Path) -> None:
    """All warnings are errors; gcc's code has the bits of weft, clang's the same numbers."""
    if shutil.which(cc) is None:
        pytest.skip(f"there is no {cc}")
    folder, x = tmp_path / "m", ids()
    export([source(Net().eval(), x)], folder, "cpu:avx2")
    with_driver(folder, cc, flags)
    _, outputs = drive(folder, [x], "2", "2")
    expected, _ = in_process(Net().eval(), [x], {}, "cpu:avx2")
    if cc == "gcc":
        assert outputs == [bits(expected[0])]
    found = torch.frombuffer(bytearray(outputs[0]), dtype=torch.float32).view_as(expected[0])
    torch.testing.assert_close(found, expected[0])


def test_arm(tmp_path: Path) -> None:
    cc, runner = "aarch64-linux-gnu-gcc", "qemu-aarch64"
    if shutil.which(cc) is None or shutil.which(runner) is None:
        pytest.skip(f"there is no {cc} or no {runner}")
    folder, x = tmp_path / "m", ids()
    export([source(Net().eval(), x)], folder, "cpu:avx2,cpu:neon")
    with_driver(folder, cc)
    told, outputs = drive(folder, [x], "2", "2", runner="qemu-aarch64 -L /usr/aarch64-linux-gnu")
    expected, _ = in_process(Net().eval(), [x], {}, "cpu:neon")
    assert told.split() == ["neon", "neon"] and outputs == [bits(expected[0])]


def test_the_best_instruction_set_is_chosen(net: tuple[Path, torch.Tensor, Path]) -> None:
    """On a processor without AVX-512 the same library runs AVX2 code, without AVX2 none."""
    folder, x, _ = net
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("there is no qemu-x86_64")
    told, outputs = drive(folder, [x], runner="qemu-x86_64 -cpu Haswell")
    expected, _ = in_process(Net().eval(), [x], {}, "cpu:avx2")
    assert told.split() == ["avx2"] and outputs == [bits(expected[0])]
    with pytest.raises(AssertionError, match="none of the instruction sets avx512 avx2"):
        drive(folder, [x], runner="qemu-x86_64 -cpu Nehalem")


def test_two_models_in_one_process(tmp_path: Path) -> None:
    libraries = [
        exported(source(fn, torch.arange(6.0)), tmp_path / name, name=name)
        for name, fn in (("one", lambda x: x + 1), ("two", lambda x: x * 2))
    ]
    main = tmp_path / "main.c"
    main.write_text(
        '#include "one/one.h"\n#include "two/two.h"\nint main(void) {\n    char e[99];\n'
        "    one_model *a = one_open(0, e, 99);\n    two_model *b = two_open(0, e, 99);\n"
        "    float x[6] = {1}, y[6];\n    one_array i = {x, 0, 0}, o = {y, 0, 0};\n"
        "    two_array j = {y, 0, 0}, p = {x, 0, 0};\n"
        "    int n = one_run(a, 0, &i, &o, 1, e, 99) + two_run(b, 0, &j, &p, 1, e, 99);\n"
        "    one_close(a);\n    two_close(b);\n    return n || x[0] != 4 || x[1] != 2;\n}\n"
    )
    for name in ("one", "two"):
        make(tmp_path / name, f"lib{name}.a")
    parts = [str(tmp_path / n / f"lib{n}.a") for n in ("one", "two")]
    command = ["gcc", "-Wall", "-Werror", str(main), *parts, "-lm", "-pthread", "-o"]
    subprocess.run([*command, str(tmp_path / "main")], check=True)
    assert subprocess.run([str(tmp_path / "main")]).returncode == 0
    x = torch.arange(6.0)
    results = [library.run((x,))[0][1] for library in libraries]
    assert torch.equal(results[0], x + 1) and torch.equal(results[1], x * 2)


def test_outputs_that_share_memory(tmp_path: Path) -> None:
    args = torch.randn(5, 4), torch.randn(3)
    library = exported(source(views, *args), tmp_path / "m")
    expected, after = in_process(views, args, {}, "cpu")
    given, _ = own(args, {})
    names = [name for name, _ in library.run(own(args, {})[0])]
    assert names == ["whole", "part.0", "part.1", "part.2", "alone", "memory.1"]
    told = (tmp_path / "m" / "weft-export.txt").read_text()
    assert "left out: n is 3" in told and "input y: f32[3] (written)" in told
    assert compared(library, given, expected, after) == ""


def test_a_program_of_no_kernels(tmp_path: Path) -> None:
    assert differs(lambda x: x[1:], (torch.randn(3),), {}, tmp_path / "m") == ""


def second_of(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x + 1, y


def test_an_argument_is_returned_as_it_comes(tmp_path: Path) -> None:
    """Not as the part of another that it was when the program was traced."""
    t = torch.arange(6.0)
    library = exported(source(second_of, t, t[2:]), tmp_path / "m")
    y = torch.randn(4)
    assert torch.equal(library.run((t, y))[1][1], y)


def test_views_of_what_is_not_given(tmp_path: Path) -> None:
    t = torch.arange(6.0)
    with pytest.raises(CaptureError, match="output 1 is a view of memory that arguments share"):
        export([source(lambda x, y: (x + 1, y[1:]), t, t[2:])], tmp_path / "m")
    with pytest.raises(CaptureError, match="output 1 is a view of more than the program is given"):
        export([source(lambda x: (x + 1, x.as_strided((6,), (1,), 0)), t[:3])], tmp_path / "m")
    net = torch.nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(CaptureError, match="the argument input is the program's own weight"):
        export([source(net, net.weight)], tmp_path / "m")


class Weft(torch.nn.Module):
    """Names that the files of a model have as well."""

    def __init__(self) -> None:
        super().__init__()
        self.weft_in, self.weft = torch.nn.Linear(3, 2), torch.nn.ModuleDict()
        self.weft["h"] = torch.nn.Linear(2, 2)

    def forward(self, weft_x: torch.Tensor, EXTENTS: torch.Tensor) -> Any:
        return {"??/": self.weft["h"](self.weft_in(weft_x)) + EXTENTS}


def test_names_stay_as_they_are(tmp_path: Path) -> None:
    library = exported(source(Weft(), torch.randn(4, 3), torch.randn(2)), tmp_path / "m")
    s = library.signature()
    assert [s.input[0].name, s.input[1].name, s.output[0].name] == [b"weft_x", b"EXTENTS", b"??/"]


def test_each_instance_has_its_own_state(tmp_path: Path) -> None:
    folder, x = tmp_path / "m", torch.tensor([1.0, 2.0, 3.0])
    library = exported(source(Counts(), x), folder)
    other = Library(folder)
    assert library.signature().keeps_state == 1
    for turn in (1, 2, 3):
        (_, doubled), (_, weight) = library.run((x,))
        assert torch.equal(doubled, 2 * turn * x) and torch.equal(weight, torch.arange(3.0))
    assert torch.equal(other.run((x,))[0][1], 2 * x)
    assert torch.equal(Library(folder).run((x,))[0][1], 2 * x)


def test_signatures_share_weights(tmp_path: Path) -> None:
    model, folder = torch.nn.Linear(9, 5), tmp_path / "m"
    shapes = torch.randn(2, 9), torch.randn(1, 4, 9)
    export([source(model, x) for x in shapes], folder, "cpu")
    make(folder, "libm.so")
    library = Library(folder)
    for number, x in enumerate(shapes):
        expected, _ = in_process(model, [x], {}, "cpu")
        ((_, found),) = library.run([x], number)
        assert unlike(found, expected[0]) == ""
    held = sum(p.numel() * 4 for p in model.parameters())
    assert held <= (folder / "weights.safetensors").stat().st_size < 2 * held + 200
    with pytest.raises(Refused, match=r"input input has the shape \[1, 5, 9\], not \[1, 4, 9\]"):
        library.run([torch.randn(1, 5, 9)], 1)


class Stateful(torch.nn.Module):
    """One row is counted; rows more than one are multiplied by what weights alone decide."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.weight = torch.nn.Buffer(torch.ones(3)), torch.nn.Buffer(torch.randn(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1:
            self.count.add_(1)
        w = (self.weight * self.count).softmax(0).cumsum(0)
        return x @ (w @ w).softmax(1)


def test_a_signature_keeps_what_another_writes(tmp_path: Path) -> None:
    model = Stateful()
    calls = [source(model, torch.randn(rows, 3)) for rows in (1, 2)]
    for call in calls:
        export([call], tmp_path / "m")
    with pytest.raises(CaptureError, match="signature program keeps count: another signature wri"):
        export(calls, tmp_path / "m")


def test_free_sizes(tmp_path: Path) -> None:
    args = torch.randn(12, 6), torch.randn(12, 6)
    library = exported(source(sized, *args), tmp_path / "m", dynamic=True)
    sizes = [library.signature().size[i] for i in range(library.signature().sizes)]
    assert [(s.name, s.input, s.dimension) for s in sizes] == [(b"s0", 0, 0), (b"s1", 0, 1)]
    for rows, columns in ((12, 6), (40, 33), (300, 70), (8, 2)):
        x, y = torch.randint(-1, 2, (2, rows, columns)).float()  # their sums are exact
        found = [t for _, t in library.run((x, y))]
        for mine, theirs in zip(found, sized(x, y), strict=True):
            torch.testing.assert_close(mine, theirs)
    for shape, told in {
        (5, 6): "only sizes with ", (12, 1): "dimension 1 of input x is 1", (70000, 6): "70000",
    }.items():  # fmt: skip
        with pytest.raises(Refused, match=told):
            library.run((torch.randn(shape), torch.randn(shape)))
    with pytest.raises(Refused, match=r"input y has the shape \[12, 7\], not \[12, 6\]"):
        library.run((torch.randn(12, 6), torch.randn(12, 7)))


def test_a_fault_names_the_torch_line(net: tuple[Path, torch.Tensor, Path]) -> None:
    library = Library(net[0])
    with pytest.raises(Refused, match=r"an index is out of range .*; programs\.py line \d+: "):
        library.run([torch.full((2, 9), 50)])
    assert len(tensors_in(library.run([ids()]))) == 1


UNLOADED = """
import _ctypes, gc, os, sys, time
from pathlib import Path
import torch
from tests.export.library import Library
torch.set_num_threads(1)
before = len(os.listdir("/proc/self/task"))
library, x = Library(Path(sys.argv[1])), torch.randn(512, 512)
first = library.run((x,), threads=1)[0][1]
assert torch.equal(library.run((x,), threads=3)[0][1], first)
assert len(os.listdir("/proc/self/task")) == before + 2
library.close()
soon = time.monotonic() + 60  # a thread that was joined is listed until the system has buried it
while len(os.listdir("/proc/self/task")) != before and time.monotonic() < soon:
    time.sleep(0.001)
assert len(os.listdir("/proc/self/task")) == before
_ctypes.dlclose(library.c._handle)
assert "libm.so" not in [line.split("/")[-1].strip() for line in open("/proc/self/maps")
                         if sys.argv[1] in line]
print("unloaded")
"""


def test_a_library_can_be_unloaded(tmp_path: Path) -> None:
    """The last instance that is closed ends the threads."""
    folder = tmp_path / "m"
    exported(source(lambda x: x.softmax(-1), torch.randn(512, 512)), folder).close()
    command = [sys.executable, "-c", UNLOADED, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parents[1])
    assert done.stdout == "unloaded\n", done.stderr
