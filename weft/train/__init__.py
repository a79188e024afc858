"""A trainer of a few parts, each of which stands by itself.

state = State(model, optimisers.adamw())
step = Step(loss, state, schedules.cosine(1e-3, 900))       # loss(model, *batch) -> f32[]
for number, value in run(step, batches, 1000, "run.safetensors"):
    ...
"""

from weft.train import optimisers, schedules
from weft.train.checkpoint import load, save
from weft.train.loop import evaluation, run
from weft.train.state import State, Step

__all__ = ["State", "Step", "evaluation", "load", "optimisers", "run", "save", "schedules"]
