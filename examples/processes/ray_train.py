"""The same under Ray Train: pip install "ray[train]"; python examples/processes/ray_train.py

Ray starts the processes, on the machines of its cluster, and makes the process group.
"""

from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from train import train


def worker() -> None:
    print("losses", *(f"{loss:.2f}" for loss in train()))


def main() -> None:
    scaling = ScalingConfig(num_workers=4, use_gpu=False, resources_per_worker={"CPU": 4})
    TorchTrainer(worker, scaling_config=scaling, run_config=RunConfig(name="weft")).fit()


if __name__ == "__main__":
    main()
