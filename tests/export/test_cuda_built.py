"""Exported CUDA as it is built and asked for: compilers, what is linked, wrong arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from tests.export.fake_device import fake_driver
from tests.export.library import export, make
from tests.export.programs import source
from tests.export.same import bits
from tests.export.test_cuda import layers
from weft.cli.main import main
from weft.core.errors import UnsupportedOpError

pytest.importorskip("cuda.bindings.nvrtc")

HERE = Path(__file__).parent


SANITIZED = "-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all"


@pytest.mark.parametrize(("cc", "flags"), [("clang", ""), ("gcc", SANITIZED)])
def test_compilers_and_sanitizers(cc: str, flags: str, tmp_path: Path) -> None:
    """The driver of the tests, by its usual name: launches do nothing, all else is checked."""
    if shutil.which(cc) is None:
        pytest.skip(f"there is no {cc}")
    folder, x, w = tmp_path / "m", torch.randn(20, 40), torch.randn(40, 24)
    export([source(layers, x, w)], folder, "sm_90a")
    make(folder, "libm.a", f"CC={cc}", f"CFLAGS=-Werror {flags}")
    program = [cc, *f"-std=gnu11 -Wall -Wextra -Werror {flags} -I{folder}".split()]
    program += [str(HERE / "driver.c"), str(folder / "libm.a"), "-lm", "-ldl", "-pthread"]
    subprocess.run([*program, "-o", str(folder / "driver")], check=True)
    fake_driver(tmp_path, *flags.split(), cc=cc)
    (folder / "io").mkdir()
    for i, t in enumerate((x, w)):
        (folder / "io" / f"in{i}").write_bytes(bits(t))
    command = [folder / "driver", folder / "weights.safetensors", folder / "io", "1", "3"]
    where = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, capture_output=True, text=True, env=where)
    assert done.returncode == 0, done.stderr[:3000]
    assert done.stdout.split() == ["sm_90a"] * 3


def test_only_libc_is_linked(tmp_path: Path) -> None:
    export([source(F.relu, torch.randn(8))], tmp_path / "m", "sm_80")
    make(tmp_path / "m", "libm.so")
    printed = subprocess.run(["ldd", tmp_path / "m" / "libm.so"], capture_output=True, text=True)
    names = {line.split(".so")[0].strip().split("/")[-1] for line in printed.stdout.splitlines()}
    assert names <= {"linux-vdso", "libm", "libc", "libdl", "libpthread", "ld-linux-x86-64"}


# --- the command line


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(target: str) -> str:
        with pytest.raises(SystemExit):
            main(["export", "-c", "torch.ones(4) + 1", "--target", target, "-o", f"{tmp_path}/m"])
        printed = capsys.readouterr()
        return printed.out + printed.err

    assert "m: exported by weft for sm_80, sm_90a" in told("sm_90a,cuda:sm_80")
    assert "twice" in told("sm_80,cuda:sm_80")
    assert "a model is for CPUs or for GPUs" in told("cpu,sm_80")
    assert "unknown target of an export 'sm_70'" in told("sm_70")


def test_ops_without_code_are_listed(tmp_path: Path) -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(torch.linalg.qr(x)[0]) + x

    with pytest.raises(UnsupportedOpError, match="2 ops have no code without torch"):
        export([source(both, torch.randn(3, 3))], tmp_path / "m", "sm_80")
    assert [*tmp_path.iterdir()] == []
