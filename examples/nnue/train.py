"""Trains the network of network.py on positions, and exports it in integers.

python -m examples.nnue.train positions/train.bf --held-out positions/held-out.bf --steps 2000

Writes run.safetensors (the checkpoint, from which --resume goes on), net.bin (for eval.c) and
curve.svg (the losses by step, beside what material alone predicts) into --out.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import weft
from examples.nnue.network import MOST, Network, chance_loss, exported
from examples.nnue.positions import Batches, material, opened, targets
from weft.core.errors import WeftError
from weft.train import State, Step, evaluation, load, optimisers, run, schedules


def by_material(known: np.ndarray, held_out: np.ndarray, share: float) -> float:
    """The loss of a chance by material alone, with the best factor for the known positions."""
    pawns, wanted = material(known), targets(known, share)
    factors = np.linspace(0.05, 1.5, 59)
    losses = [np.square(1 / (1 + np.exp(-f * pawns)) - wanted).mean() for f in factors]
    chance = 1 / (1 + np.exp(-factors[np.argmin(losses)] * material(held_out)))
    return float(np.square(chance - targets(held_out, share)).mean())


@dataclass
class Curve:
    """Losses by step, drawn as SVG on a logarithmic scale."""

    baseline: float | None = None
    trained: list[tuple[int, float]] = field(default_factory=list)
    held_out: list[tuple[int, float]] = field(default_factory=list)

    def svg(self) -> str:
        width, height, left, bottom = 640, 400, 70, 40
        points = self.trained + self.held_out
        values = [v for _, v in points] + ([self.baseline] if self.baseline else [])
        last = max(step for step, _ in points)
        low, high = np.log10(min(values)) - 0.02, np.log10(max(values)) + 0.02

        def place(step: float, value: float) -> str:
            x = left + (width - left - 20) * step / last
            y = 20 + (height - bottom - 20) * (high - np.log10(value)) / (high - low)
            return f"{x:.1f},{y:.1f}"

        lines = {
            "training": ("#888", self.trained),
            "held out": ("#06c", self.held_out),
            "material alone": ("#c60", [(0, self.baseline), (last, self.baseline)]),
        }
        parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"']
        parts.append(' font-family="sans-serif" font-size="12">')
        parts.append('<rect width="100%" height="100%" fill="white"/>')
        for i, (name, (colour, line)) in enumerate(lines.items()):
            if line and line[-1][1] is not None:
                path = " ".join(place(step, value) for step, value in line if value)
                parts.append(f'<polyline fill="none" stroke="{colour}" points="{path}"/>')
                text = f"{name}: {line[-1][1]:.5f}"
                parts.append(
                    f'<text x="{width - 200}" y="{40 + 18 * i}" fill="{colour}">{text}</text>'
                )
        for value in np.logspace(low, high, 5):
            x, y = place(0, value).split(",")
            parts.append(f'<text x="8" y="{y}">{value:.4f}</text>')
            parts.append(f'<path stroke="#ddd" d="M{x},{y} H{width - 20}"/>')
        for step in np.linspace(0, last, 5).round().astype(int):
            x, _ = place(step, values[0]).split(",")
            parts.append(f'<text x="{x}" y="{height - 15}">{step}</text>')
        return "\n".join([*parts, "</svg>"]) + "\n"


def parsed(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("positions", type=Path)
    add("--held-out", type=Path)
    add("--out", type=Path, default=Path("."), help="folder of what is written")
    add("--width", type=int, default=256)
    add("--king-buckets", type=int, default=1, choices=(1, 2, 4))
    add("--factorised", action="store_true", help="king buckets share a part of their columns")
    add("--batch", type=int, default=4096)
    add("--steps", type=int, default=2000)
    add("--rate", type=float, default=1e-3)
    add("--share", type=float, default=0.25, help="of the game's result in what is predicted")
    add("--seed", type=int, default=0)
    add("--every", type=int, default=500, help="steps between checkpoints")
    add("--check-finite", action="store_true", help="stop at the first step that is not finite")
    add("--resume", action="store_true")
    add("--eager", action="store_true", help="without a compiler")
    return parser.parse_args(given)


def train(chosen: argparse.Namespace) -> None:
    compiler = (lambda f: f) if chosen.eager else weft.compile
    records = opened(chosen.positions)
    data = Batches(records, chosen.batch, chosen.seed, chosen.king_buckets, chosen.share)
    torch.manual_seed(chosen.seed)
    network = Network(chosen.width, chosen.king_buckets, chosen.factorised)
    # Two parts of a column add up, so each keeps within half of what fits 16 bits.
    most = MOST / 2 if chosen.factorised else MOST
    state = State(network, optimisers.bounded(optimisers.adamw(), most), chosen.seed)
    warm = min(100, chosen.steps // 10 + 1)
    rate = schedules.warm_up(warm, schedules.cosine(chosen.rate, chosen.steps - warm, 0.0), 1e-5)
    step = Step(chance_loss, state, rate, chosen.check_finite, compiler)
    checkpoint, curve, rows = chosen.out / "run.safetensors", Curve(), []
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.resume:
        load(checkpoint, state)
    mean = evaluation(chance_loss, network, compiler)
    if chosen.held_out:
        held_out = opened(chosen.held_out)
        curve.baseline = by_material(records[:100_000], held_out, chosen.share)
        size = min(chosen.batch, len(held_out))
        rows = Batches(held_out, size, 0, chosen.king_buckets, chosen.share).in_order()
    every = max(1, chosen.steps // 50)
    for number, loss in run(step, data, chosen.steps, checkpoint, chosen.every):
        if number % every == 0 or number == chosen.steps:
            curve.trained.append((number, loss.item()))
            if rows:
                curve.held_out.append((number, mean(rows)))
    exported(network).save(chosen.out / "net.bin")
    if curve.trained:
        (chosen.out / "curve.svg").write_text(curve.svg())
    if curve.held_out:
        loss, material_loss = curve.held_out[-1][1], curve.baseline
        print(f"held out: loss {loss:.5f}, by material alone {material_loss:.5f}")


def main(given: list[str] | None = None) -> int:
    try:
        train(parsed(given))
    except (WeftError, OSError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
