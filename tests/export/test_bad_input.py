"""What is wrong with a file, a call or a program is one sentence, and nothing is half written."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.export.library import Library, Refused, exported
from tests.export.programs import source
from weft.cli.main import main


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("linear") / "m"
    exported(source(nn.Linear(3, 2), torch.randn(4, 3)), folder).close()
    return folder


def header(data: bytes) -> tuple[dict[str, dict[str, object]], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(tree: object, rest: bytes, more: int = 0) -> bytes:
    text = json.dumps(tree, indent=1).encode()
    text += b" " * (-(8 + len(text)) % 64 + more)
    return struct.pack("<Q", len(text)) + text + rest


def edited(change: Callable[[dict[str, dict[str, object]]], object]) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        tree, rest = header(data)
        change(tree)
        return with_header(tree, rest)

    return edit


FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda d: b"", "cannot map .*: it is empty"),
    "one byte": (lambda d: b"x", "no whole safetensors file: its header is missing"),
    "magic": (lambda d: b"PK\3\4" + d[4:], "no whole safetensors file: its header is missing"),
    "header cut": (lambda d: d[:40], "no whole safetensors file"),
    "data cut": (lambda d: d[:-4], "weight weight lies behind the end of the file|bias lies"),
    "length": (lambda d: b"\xff" * 8 + d[8:], "its header is missing"),
    "no JSON": (lambda d: d[:8] + d[8:].replace(b":", b";"), "its header is no JSON"),
    "no end": (lambda d: d[:8] + d[8:].replace(b"}", b" "), "its header is no JSON"),
    "missing": (edited(lambda t: t.pop("bias")), "has no weight bias"),
    "dtype": (edited(lambda t: t["bias"].update(dtype="F64")), "weight bias has another dtype"),
    "size": (edited(lambda t: t["bias"].update(data_offsets=[24, 28])), "bias has another size"),
    "shape": (edited(lambda t: t["weight"].update(shape=[3, 2])), "weight has another shape"),
    "order": (edited(lambda t: t["bias"].update(data_offsets=[32, 24])), "bias has another size"),
    "far": (
        edited(lambda t: t["bias"].update(data_offsets=[2**63, 2**63 + 8])),
        "bias has another size|bias lies behind the end",
    ),
    "odd": (lambda d: with_header(*header(d), more=1), "does not lie at a multiple of its items"),
}


@pytest.mark.parametrize("name", FILES)
def test_wrong_weights(name: str, linear: Path, tmp_path: Path) -> None:
    change, told = FILES[name]
    path = tmp_path / "weights.safetensors"
    path.write_bytes(change((linear / "weights.safetensors").read_bytes()))
    with pytest.raises(Refused, match=told):
        Library(linear, weights=path)


def test_no_weights(linear: Path) -> None:
    with pytest.raises(Refused, match="cannot open the weights, /nowhere: No such file"):
        Library(linear, weights=Path("/nowhere"))


def test_weights_of_another_writer(linear: Path, tmp_path: Path) -> None:
    """Another order, more tensors, metadata and spaces: what the safetensors library may write."""
    x = torch.randn(4, 3)
    library = Library(linear)
    tree, rest = header((linear / "weights.safetensors").read_bytes())
    more: dict[str, object] = {
        "__metadata__": {"a": 'x]}" \\'},
        "other": {"dtype": "U8", "shape": [1], "data_offsets": [32, 33]},
    }
    more |= dict(reversed(tree.items()))
    path = tmp_path / "weights.safetensors"
    path.write_bytes(with_header(more, rest + b"\0"))
    assert torch.equal(Library(linear, weights=path).run((x,))[0][1], library.run((x,))[0][1])


def test_wrong_calls(linear: Path) -> None:
    library = Library(linear)
    for args, number, told in (
        ((torch.randn(4, 4),), 0, r"input input has the shape \[4, 4\], not \[4, 3\]"),
        ((torch.randn(3, 4).t(),), 0, "input input has a stride of 1 in dimension 0, not 3"),
    ):
        with pytest.raises(Refused, match=told):
            library.run(args, number)
    failed = library.call("run", library.model, 5, None, None, 1, *library.room())
    assert failed == 1 and b"there is no signature 5" in library.error.value


# --- the command line

CALLS = """
def f(x):
    q, _ = torch.linalg.qr(x)
    return torch.linalg.svdvals(q) + 1
f(torch.randn(3, 3))
"""


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["export", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err.removeprefix("weft: ")


def test_all_ops_without_code_are_listed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = told(capsys, "-c", CALLS, "-o", str(tmp_path / "m"))
    assert text.startswith("2 ops have no code without torch: aten.linalg_qr.default (")
    assert "aten._linalg_svd.default (" in text and "line 3" in text and "line 4" in text
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("--target", "cuda"), "unknown target of an export 'cuda': one of cpu, cpu:avx512_bf16"),
        (("--target", "cpu:avx2,cpu:avx2"), "has avx2 twice"),
        (("--name", "Model"), "'Model' is no name for a model's C functions"),
        (("--name", "example"), "'example' is no name for a model's C functions"),
        (("--name", "math"), "'math' is no name for a model's C functions"),
        (("--signature", "y=3"), "unknown argument of --signature 'y': one of x"),
        (("--signature", "x=3,4"), "unknown argument of --signature '4'"),
        (("--signature", "x=a"), "--signature x=a is no shape such as x=8x64"),
    ],
)
def test_wrong_arguments(
    arguments: tuple[str, ...], wrong: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = told(capsys, "-c", "torch.randn(4) + 1", "-o", str(tmp_path / "m"), *arguments)
    assert wrong in text and [*tmp_path.iterdir()] == []


def test_a_folder_of_something_else_stays(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("")
    text = told(capsys, "-c", "torch.randn(4) + 1", "-o", str(tmp_path), "--name", "m")
    assert "holds other files: export to a folder of its own" in text
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_export_writes_anew(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What `weft export` prints, and a second export over the first."""
    folder = tmp_path / "plus"
    for more in ("1", "2"):
        main_arguments = ["export", "-c", f"torch.randn(4) + {more}", "-o", str(folder)]
        with pytest.raises(SystemExit) as ended:
            main(main_arguments)
        assert ended.value.code in (0, None)
    assert "input x: f32[4]\n  output out: f32[4]" in capsys.readouterr().out
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert {"plus.h", "plus.c", "example.c", "Makefile", "CMakeLists.txt"} <= files
    assert [p.name for p in tmp_path.iterdir()] == ["plus"]


def test_a_link_stays_and_a_file_is_no_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = "-c", "torch.randn(4) + 1", "--name", "m", "-o"
    (tmp_path / "file").write_text("")
    assert "Not a directory" in told(capsys, *arguments, str(tmp_path / "file"))
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real").mkdir()
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(["export", *arguments, str(tmp_path / "link")])
        assert ended.value.code in (0, None)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "m.h").is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "link", "real"]
