"""The NNUE example: positions, the network in floats and in integers, C, and its two programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from examples.nnue import network as nets
from examples.nnue import train
from examples.nnue.network import Network, chance_loss, evaluated, exported
from examples.nnue.positions import RECORD, Batches, king_bucket, lists, material, opened, targets
from weft.core.errors import WeftError
from weft.runtime.compiler import find_compiler
from weft.train import State, Step, optimisers, schedules

ROOT = Path(__file__).resolve().parent.parent.parent
SQUARES = np.arange(64)


def made(count: int, seed: int = 0) -> np.ndarray:
    """Positions of any pieces on any squares, with the two kings."""
    draw, found = np.random.default_rng(seed), np.zeros(count, RECORD)
    for row in found:
        squares = draw.choice(64, draw.integers(2, 33), replace=False)
        codes = draw.choice([0, 1, 2, 3, 4, 8, 9, 10, 11, 12], len(squares))
        codes[:2] = 5, 13
        row["king"], row["other_king"] = squares[0], squares[1] ^ 56
        for i, at in enumerate(np.argsort(squares)):
            row["occupied"] |= np.uint64(1) << np.uint64(squares[at])
            row["pieces"][i // 2] |= codes[at] << 4 * (i % 2)
        row["score"], row["result"] = draw.integers(-900, 900), draw.integers(3)
    return found


def by_hand(record: np.void, king_buckets: int) -> tuple[list[int], list[int]]:
    own, other = list[int](), list[int]()
    kings = [int(king_bucket(record[k], king_buckets)) * 768 for k in ("king", "other_king")]
    squares = [s for s in range(64) if int(record["occupied"]) >> s & 1]
    for i, square in enumerate(squares):
        code = int(record["pieces"][i // 2]) >> 4 * (i % 2) & 15
        kind, theirs = code & 7, code >> 3
        own.append(kings[0] + 384 * theirs + 64 * kind + square)
        other.append(kings[1] + 384 * (1 - theirs) + 64 * kind + (square ^ 56))
    return own, other


@pytest.mark.parametrize("king_buckets", [1, 2, 4])
def test_lists(king_buckets: int) -> None:
    records = made(50)
    own, other, counts = lists(records, king_buckets)
    assert own.dtype == other.dtype == np.int32
    for i, record in enumerate(records):
        wanted = by_hand(record, king_buckets)
        for row, inputs in zip((own[i], other[i]), wanted, strict=True):
            filler = [768 * king_buckets] * (32 - counts[i])
            assert row.tolist() == inputs + filler
    assert len({int(b) for b in king_bucket(SQUARES, king_buckets)}) == king_buckets


def test_targets_and_material() -> None:
    records = made(2)
    records["score"], records["result"] = (0, 400), (2, 0)
    wanted = [0.75 * 0.5 + 0.25, 0.75 / (1 + np.exp(-1))]
    np.testing.assert_allclose(targets(records, 0.25), wanted)
    records = np.zeros(1, RECORD)  # king, queen and pawn against king and rook
    records["occupied"], records["pieces"][0, :3] = 0b11111, (0x45, 0xB0, 0x0D)
    assert material(records)[0] == 9 + 1 - 5


def test_batches_are_a_function_of_their_number() -> None:
    records = made(40)
    records["score"] = np.arange(40)
    one, other = Batches(records, 8, seed=1, share=0.0), Batches(records, 8, seed=1, share=0.0)
    wanted = [one(place) for place in range(12)]
    for place in (11, 3, 7, 3):
        for a, b in zip(other(place), wanted[place], strict=True):
            assert torch.equal(a, b)
    for epoch in (wanted[:5], wanted[5:10]):  # each position once
        seen = torch.cat([batch[3] for batch in epoch]).flatten()
        assert len(seen.unique()) == 40
    assert not torch.equal(wanted[0][3], wanted[5][3])
    assert [len(batch[0]) for batch in Batches(records, 16).in_order()] == [16, 16, 8]


# --- bad input ------------------------------------------------------------------------------------


def test_damaged_files(tmp_path: Path) -> None:
    path, good = tmp_path / "x.bf", made(4)
    for data, why in ((b"", "is empty"), (good.tobytes()[:-3], "ends 29 bytes into record 3")):
        path.write_bytes(data)
        with pytest.raises(WeftError, match=why) as error:
            opened(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(WeftError, match=r"cannot read positions from .*: No such file"):
        opened(tmp_path / "none")
    with pytest.raises(WeftError, match="4 positions fill no batch of 5"):
        Batches(good, 5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("occupied", 2**64 - 1),
        ("occupied", 0),
        ("pieces", 0x77),
        ("king", 64),
        ("other_king", 255),
        ("result", 3),
    ],
)
def test_a_record_that_is_no_position(field: str, value: int) -> None:
    records = made(4)
    records[field][2] = value
    with pytest.raises(WeftError, match="record 2 of 4 read is no position"):
        lists(records, 2)


def test_an_overflow_is_refused() -> None:
    net = Network(4)
    torch.nn.init.constant_(net.columns, 4.1)
    with pytest.raises(WeftError, match="a sum of 32 columns may reach 3"):
        exported(net)
    torch.nn.init.constant_(net.columns, 130.0)
    with pytest.raises(WeftError, match=r"columns \* 255 does not fit 16 bits"):
        exported(net)
    torch.nn.init.constant_(net.columns, torch.nan)
    with pytest.raises(WeftError, match="does not fit"):
        exported(net)


# --- the network ----------------------------------------------------------------------------------


def trained(factorised: bool, king_buckets: int, width: int = 16) -> Network:
    """After some steps at a high rate, so that all parts have moved."""
    torch.manual_seed(0)
    net = Network(width, king_buckets, factorised)
    state = State(net, optimisers.bounded(optimisers.adamw(), 0.99))
    step = Step(chance_loss, state, schedules.constant(0.02), True, lambda f: f)
    data = Batches(made(256, 3), 64, king_buckets=king_buckets)
    losses = [step(*data(place)).item() for place in range(30)]
    assert losses[-1] < losses[0]
    return net


def compiled_c(folder: Path) -> Path:
    command = find_compiler().command
    subprocess.run(
        [*command, "-O2", "-Wall", "-Werror", "-o", folder / "eval", ROOT / "examples/nnue/eval.c"],
        check=True,
    )
    return folder / "eval"


@pytest.mark.parametrize(
    ("factorised", "king_buckets"), [(False, 1), (True, 1), (False, 2), (True, 4)]
)
def test_c_equals_the_integers(tmp_path: Path, factorised: bool, king_buckets: int) -> None:
    """On every position; and both are the float network's values but for rounding of f32 and two
    divisions that truncate."""
    net, records = trained(factorised, king_buckets), made(2000, 9)
    integers = exported(net)
    integers.save(tmp_path / "net.bin")
    (tmp_path / "x.bf").write_bytes(records.tobytes())
    command = [compiled_c(tmp_path), tmp_path / "net.bin", tmp_path / "x.bf"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    sums, scores = evaluated(integers, records)
    assert lines == [f"{a} {b}" for a, b in zip(sums, scores, strict=True)]
    assert len(set(scores.tolist())) > 100
    with torch.no_grad():
        own, other, bucket, _ = Batches(records, 2000, king_buckets=king_buckets).of(records)
        floats = net(own, other, bucket)[:, 0].double() * nets.IN_UNIT * nets.OUT_UNIT
    assert (floats - torch.from_numpy(sums)).abs().max() <= 1.1


def test_c_refuses_damaged_files(tmp_path: Path) -> None:
    program, good = compiled_c(tmp_path), made(3)
    exported(Network(4)).save(tmp_path / "net.bin")
    data = (tmp_path / "net.bin").read_bytes()
    bad = good.copy()
    bad["pieces"][1] = 0x66
    cases = [
        (data[:-1], good.tobytes(), "net.bin: cut short"),
        (b"1234" + data, good.tobytes(), "net.bin: is no network"),
        (data + b"1", good.tobytes(), "net.bin: is too long"),
        (data, good.tobytes()[:-1], "x.bf: cut short"),
        (data, bad.tobytes(), "x.bf: has a record that is no position"),
    ]
    for net, positions, why in cases:
        (tmp_path / "net.bin").write_bytes(net)
        (tmp_path / "x.bf").write_bytes(positions)
        command = [program, tmp_path / "net.bin", tmp_path / "x.bf"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.rstrip().endswith(why)


# --- the programs ---------------------------------------------------------------------------------


def small(tmp_path: Path, *more: str) -> int:
    (tmp_path / "t.bf").write_bytes(made(300, 1).tobytes())
    (tmp_path / "h.bf").write_bytes(made(64, 2).tobytes())
    files = [str(tmp_path / "t.bf"), "--held-out", str(tmp_path / "h.bf"), "--out", str(tmp_path)]
    sizes = ["--width", "8", "--batch", "64", "--every", "6"]
    return train.main([*files, *sizes, *more])


def test_training_writes_all_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert small(tmp_path, "--steps", "12") == 0  # compiled
    told = capsys.readouterr()
    assert told.out.startswith("held out: loss 0.") and "step 12 of 12" in told.err
    picture = ElementTree.fromstring((tmp_path / "curve.svg").read_text())
    assert len(picture.findall("{*}polyline")) == 3
    net = (tmp_path / "net.bin").read_bytes()
    assert len(net) == 16 + 2 * (768 * 8 + 8 + 8 * 16 + 8)
    os.remove(tmp_path / "net.bin")
    assert small(tmp_path, "--steps", "12", "--resume") == 0  # nothing is left to do
    assert (tmp_path / "net.bin").read_bytes() == net


def test_training_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert small(tmp_path, "--steps", "5", "--resume") == 1
    assert "cannot resume from" in capsys.readouterr().err
    (tmp_path / "short.bf").write_bytes(b"123")
    assert train.main([str(tmp_path / "short.bf")]) == 1
    assert "ends 3 bytes into record 0" in capsys.readouterr().err.splitlines()[-1]


def test_the_commands_of_the_page() -> None:
    page = (ROOT / "examples/nnue/README.md").read_text()
    (command,) = (
        line for line in page.splitlines() if line.startswith("python -m examples.nnue.t")
    )
    chosen = train.parsed(command.split()[3:])
    assert chosen.steps == 600 and chosen.held_out == Path("positions/held-out.bf")
    options = {word for part in page.split("`")[1::2] for word in part.split() if word[:2] == "--"}
    options -= {"--games", "--jobs"}
    with pytest.raises(SystemExit):
        train.parsed(["x", "--unknown"])
    for option in options:
        value = {"--king-buckets": ["4"], "--steps": ["9"], "--held-out": ["x"]}.get(option, [])
        assert train.parsed(["x", option, *value])


def test_generated_positions(tmp_path: Path) -> None:
    chess = pytest.importorskip("chess")
    from examples.nnue import generate

    for jobs in ("1", "2"):
        generate.main([str(tmp_path / jobs), "--games", "20", "--jobs", jobs])
    parts = [opened(tmp_path / "1" / name) for name in ("train.bf", "held-out.bf")]
    assert np.array_equal(
        parts[0], opened(tmp_path / "2" / "train.bf")
    )  # the same by any processes
    one = generate.game(0, 9)  # the tenth of the first ten
    assert np.array_equal(np.asarray(parts[1][: len(one)]), one)
    every = np.concatenate(parts)
    lists(every)
    assert len(every) > 300 and set(every["result"]) == {0, 1, 2}
    board = chess.Board("4k3/8/8/8/8/2n5/P7/R3K3 b Q - 0 1")
    record = generate.record(board, -31.4)[None]
    own, _, _ = lists(record)
    wanted = sorted(
        (0 if piece.color == board.turn else 384) + 64 * (piece.piece_type - 1) + (square ^ 56)
        for square, piece in board.piece_map().items()
    )
    assert sorted(own[0][:5].tolist()) == wanted and record["score"][0] == -31
    assert (record["king"][0], record["other_king"][0]) == (4, 4)


def test_scores_are_what_a_move_gains(tmp_path: Path) -> None:
    """The sum that a game keeps is that of its board, through captures, castling, promotions."""
    chess = pytest.importorskip("chess")
    from examples.nnue import generate

    board = chess.Board("r3k3/1P6/8/3pP3/8/8/8/4K2R w Kq d6 0 1")
    seen = 0
    for move in board.legal_moves:
        if board.is_castling(move):
            continue  # the rook's part comes when the move is made
        before, gained = generate.standing(board), generate.gain(board, move, 0)
        board.push(move)
        near = 60 if move.promotion or board.move_stack[-1].uci() == "e5d6" else 1e-6
        assert abs(before + gained - generate.standing(board)) <= near, move
        board.pop()
        seen += 1
    assert seen > 15


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("chess")
    from examples.nnue import generate

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "train.bf").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemExit, match=r"cannot write .*train.bf: No space left on device"):
        generate.main([str(tmp_path), "--games", "1"])
    assert (tmp_path / "train.bf").read_bytes() == b"old" and os.listdir(tmp_path) == ["train.bf"]
