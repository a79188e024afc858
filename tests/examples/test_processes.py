"""The examples of several processes: torchrun's trains, and the others say what theirs take."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "examples" / "processes"


def test_torchrun() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*torchrun, str(FOLDER / "train.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    word, *losses = done.stdout.split()
    assert word == "losses" and float(losses[-1]) < 0.6 * float(losses[0])


def test_ray() -> None:
    """Ray is not here: the file is Python, and what it takes of the other example is there."""
    tree = ast.parse((FOLDER / "ray_train.py").read_text())
    taken = {
        n.module: [a.name for a in n.names] for n in tree.body if isinstance(n, ast.ImportFrom)
    }
    own = ast.parse((FOLDER / "train.py").read_text())
    assert {*taken["train"]} <= {n.name for n in own.body if isinstance(n, ast.FunctionDef)}


def test_kubernetes() -> None:
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {name: r["replicas"] for name, r in replicas.items()} == {"Master": 1, "Worker": 3}
    for replica in replicas.values():
        (container,) = replica["template"]["spec"]["containers"]
        assert container["name"] == "pytorch"  # the operator finds it by that name
        path = Path(container["command"][-1])
        assert (ROOT / path.relative_to("/weft")).exists()
