"""MegEngine's features: launcher, bcast_list_, allreduce callback, shards, save and load, barrier.

python examples/megengine/train.py --ranks 2        (the model is of NumPy: MegEngine is not needed)
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pycollective as pc

parser = argparse.ArgumentParser()
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch", type=int, default=96, help="global: the same for any number of ranks")
parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one training for each")
parser.add_argument("--json", action="store_true", help="end with the result as one line of JSON")
options = parser.parse_args()

digits = load_digits()
split = train_test_split(digits.data / 16 - 0.5, digits.target, test_size=357, random_state=0)
images, test_images, labels, test_labels = split


def backward(p: dict, x: np.ndarray, y: np.ndarray, n: int, callback: Callable) -> None:
    """Pass each gradient of cross-entropy / n to the callback, the last layer's first."""
    hidden = np.maximum(x @ p["w1"] + p["b1"], 0)
    scores = np.exp(hidden @ p["w2"] + p["b2"])
    d_scores = (scores / scores.sum(1, keepdims=True) - np.eye(10)[y]) / n
    callback("b2", d_scores.sum(0))
    callback("w2", hidden.T @ d_scores)
    d_hidden = d_scores @ p["w2"].T * (hidden > 0)
    callback("b1", d_hidden.sum(0))
    callback("w1", x.T @ d_hidden)


def accuracy_of(p: dict) -> float:
    """Each test sample once, on one rank, for any number of ranks."""
    mine = list(pc.data.Sampler(test_images, uneven="exact"))
    scores = np.maximum(test_images[mine] @ p["w1"] + p["b1"], 0) @ p["w2"] + p["b2"]
    return pc.metrics.compute(pc.metrics.accuracy(scores, test_labels[mine])[0])


def train(seed: int, op: str, path: Path) -> float:
    rng = np.random.default_rng(pc.seed(seed))  # a different one on every rank
    p = {"w1": rng.normal(0, 0.15, (64, 48)), "b1": np.zeros(48)}
    p |= {"w2": rng.normal(0, 0.15, (48, 10)), "b2": np.zeros(10)}
    pc.broadcast(p)  # now all ranks have rank 0's parameters
    gradients = pc.GradientReducer(p, op=op)
    sampler = pc.data.BatchSampler(images, global_batch_size=options.batch, shuffle=True, seed=seed)
    for epoch in range(options.epochs):
        for batch in sampler:
            n = len(batch) if op == "avg" else options.batch  # a mean of the ranks' means, or a sum of shares
            backward(p, images[batch], labels[batch], n, gradients.ready)  # sends while it computes
            for name, gradient in gradients.finish().items():
                p[name] -= 0.3 * gradient
        pc.checkpoint.save({"epoch": epoch, "parameters": p}, path)
    return accuracy_of(pc.checkpoint.load(path)["parameters"])


@pc.launch(n=options.ranks)
def main(folder: str) -> list[float]:
    """Runs on every rank, in a world."""
    runs = [train(seed, op, Path(folder, "last.ckpt")) for op in ("avg", "sum") for seed in options.seeds]
    pc.barrier()
    return runs


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        results = main(folder)  # the results of all ranks
    shown = f"test accuracy on {len(results)} ranks: " + ", ".join(f"{each:.1%}" for each in results[0])
    print(json.dumps({"ranks": len(results), "accuracies": results[0]}) if options.json else shown)
