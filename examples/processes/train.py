"""Data parallel training: torchrun --standalone --nproc-per-node=2 examples/processes/train.py

Each process has its own part of the data; DistributedDataParallel averages gradients. weft compiles
the forward and backward of the model, from one cache: see docs/DISTRIBUTED.md.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 1))


def batches(rank: int, count: int):
    """Points of a function to learn, others in each process."""
    numbers = torch.Generator().manual_seed(rank)
    for _ in range(count):
        x = torch.randn(128, 16, generator=numbers)
        yield x, x[:, :4].sin().sum(1, keepdim=True)


def train(steps: int = 60) -> list[float]:
    """The losses, averaged over processes, of every twentieth step."""
    torch.manual_seed(0)
    model = weft.compile(DistributedDataParallel(network()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses: list[float] = []
    for step, (x, y) in enumerate(batches(dist.get_rank(), steps)):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item() / dist.get_world_size())
    return losses


def main() -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    losses = train()
    if dist.get_rank() == 0:
        print("losses", *(f"{loss:.2f}" for loss in losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
