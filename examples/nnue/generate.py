"""Makes positions by games of a player that looks one move ahead, at material and squares.

python -m examples.nnue.generate positions --games 4000 --jobs 2

Writes positions/train.bf and positions/held-out.bf, every tenth game to the latter: positions of a
game resemble each other, so no game is in both. Each game begins with eight random moves, and has
random numbers of its own by --seed and its number. Kept are quiet positions: not in check, and the
move chosen takes nothing. Their score is what the player saw, their result the game's.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import starmap
from pathlib import Path

import chess
import numpy as np

from examples.nnue.positions import RECORD

VALUES = (100, 320, 330, 500, 900, 0)
WON, MOST_MOVES, RANDOM_MOVES, NOISE = 1200, 240, 8, 24.0
HELD_OUT = 10


def worth() -> list[list[float]]:
    """By kind of piece and square, of white: its value, more near the centre; pawns by rank."""
    table: list[list[float]] = []
    for kind, value in enumerate(VALUES):
        row: list[float] = []
        for square in chess.SQUARES:
            file, rank = square & 7, square >> 3
            centre = 3.5 - max(abs(file - 3.5), abs(rank - 3.5))
            near = {0: 6.0 * rank, 1: 12.0 * centre, 5: -8.0 * rank}.get(kind, 5.0 * centre)
            row.append(value + near)
        table.append(row)
    return table


WORTH = worth()


def standing(board: chess.Board) -> float:
    """White's sum less black's."""
    total = 0.0
    for square, piece in board.piece_map().items():
        row = WORTH[piece.piece_type - 1]
        total += row[square] if piece.color else -row[square ^ 56]
    return total


def gain(board: chess.Board, move: chess.Move, flip: int) -> float:
    """What the side to move gains by a move, at once."""
    kind = board.piece_type_at(move.from_square) or 1
    row = WORTH[kind - 1]
    there = WORTH[move.promotion - 1] if move.promotion else row
    found = there[move.to_square ^ flip] - row[move.from_square ^ flip]
    taken = board.piece_type_at(move.to_square)
    if taken:
        found += WORTH[taken - 1][move.to_square ^ flip ^ 56]
    elif kind == chess.PAWN and (move.from_square ^ move.to_square) & 7:
        found += VALUES[0]  # in passing
    return found


def record(board: chess.Board, score: float) -> np.ndarray:
    """Of the side to move, its result still that of white: 0, 1 or 2 comes when the game ends."""
    found = np.zeros((), RECORD)
    flip = 0 if board.turn else 56
    codes = {
        square ^ flip: piece.piece_type - 1 + 8 * (piece.color != board.turn)
        for square, piece in board.piece_map().items()
    }
    pieces = found["pieces"]
    for i, square in enumerate(sorted(codes)):
        pieces[i // 2] |= codes[square] << 4 * (i & 1)
    found["occupied"] = sum(1 << square for square in codes)
    found["score"] = round(max(-2000.0, min(2000.0, score)))
    found["king"] = (board.king(board.turn) or 0) ^ flip
    found["other_king"] = (board.king(not board.turn) or 0) ^ flip ^ 56
    return found


def game(seed: int, number: int) -> np.ndarray:
    """The quiet positions of a game."""
    draw, board = random.Random(f"{seed} {number}"), chess.Board()
    kept: list[np.ndarray] = []
    turns: list[bool] = []
    now, won = standing(board), 0  # won: 1 for white, -1 for black
    for count in range(MOST_MOVES):
        moves = list(board.legal_moves)
        sign, flip = (1, 0) if board.turn else (-1, 56)
        if not moves:
            won = -sign if board.is_check() else 0
            break
        if board.halfmove_clock >= 60 or board.is_insufficient_material():
            break
        if abs(now) > WON:
            won = 1 if now > 0 else -1
            break
        if count < RANDOM_MOVES:
            best, much = draw.choice(moves), 0.0
        else:
            noisy = [(gain(board, move, flip), draw.gauss(0.0, NOISE), move) for move in moves]
            much, _, best = max(noisy, key=lambda one: one[0] + one[1])
            if not board.is_capture(best) and not best.promotion and not board.is_check():
                kept.append(record(board, sign * now + much))
                turns.append(board.turn)
        if best.promotion or board.is_castling(best) or board.is_capture(best):
            board.push(best)
            now = standing(board)
        else:
            now += sign * gain(board, best, flip)
            board.push(best)
    found = np.array(kept, RECORD)
    found["result"] = [1 + (won if turn else -won) for turn in turns]
    return found


def games(seed: int, first: int, count: int) -> list[np.ndarray]:
    return [game(seed, number) for number in range(first, first + count)]


def write(path: Path, parts: list[np.ndarray]) -> None:
    """In one step, so that no file is ever cut short."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(np.concatenate([np.zeros(0, RECORD), *parts]).tobytes())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SystemExit(f"cannot write {path}: {error.strerror}") from None


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--games", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    chosen = parser.parse_args(given)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    start, chunk = time.perf_counter(), 50
    parts = [
        (chosen.seed, first, min(chunk, chosen.games - first))
        for first in range(0, chosen.games, chunk)
    ]
    if chosen.jobs > 1:
        with ProcessPoolExecutor(chosen.jobs) as pool:
            done = list(pool.map(games, *zip(*parts, strict=True)))
    else:
        done = list(starmap(games, parts))
    all_games = [played for part in done for played in part]
    write(chosen.folder / "train.bf", [g for i, g in enumerate(all_games) if (i + 1) % HELD_OUT])
    write(chosen.folder / "held-out.bf", all_games[HELD_OUT - 1 :: HELD_OUT])
    count, seconds = sum(map(len, all_games)), time.perf_counter() - start
    print(
        f"{count} positions of {chosen.games} games, {count / seconds:.0f} a second",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
