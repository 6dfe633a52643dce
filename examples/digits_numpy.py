"""Data-parallel training in NumPy: handwritten digits, two layers, any number of ranks.

pycollective run -n 4 examples/digits_numpy.py
"""

import argparse
import hashlib
import json
import time

import numpy as np
from sklearn.datasets import load_digits

import pycollective as pc

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--batch", type=int, default=120, help="global: the same for any number of ranks")
parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
parser.add_argument("--dump", metavar="PATH", help="rank 0 writes the parameters here (.npz)")
parser.add_argument("--json", action="store_true", help="end with the result as one line of JSON")
options = parser.parse_args()

pc.init()
if options.batch % pc.size():
    parser.error(f"--batch {options.batch} cannot be cut into {pc.size()} equal slices")
digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))  # the same on every rank
images, labels = (digits.data[order] / 16 - 0.5).astype(options.dtype), digits.target[order]
train_x, test_x, train_y, test_y = images[:1440], images[1440:], labels[:1440], labels[1440:]

rng = np.random.default_rng(pc.rank())  # every rank starts differently; the broadcast makes them equal
parameters = [rng.normal(0, 0.15, (64, 128)), np.zeros(128), rng.normal(0, 0.1, (128, 10)), np.zeros(10)]
w1, b1, w2, b2 = parameters = [pc.broadcast(p.astype(options.dtype), root=0) for p in parameters]
velocity = [np.zeros_like(p) for p in parameters]


def loss_and_gradient(x: np.ndarray, y: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """Mean cross-entropy of `relu(x w1 + b1) w2 + b2` and its derivative by each parameter."""
    hidden = np.maximum(x @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    scores -= scores.max(1, keepdims=True)
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    each = np.arange(len(y))
    loss = -np.log(chances[each, y]).mean()
    chances[each, y] -= 1  # the derivative of softmax and cross-entropy together
    d_scores = chances / len(y)
    d_hidden = (d_scores @ w2.T) * (hidden > 0)
    return float(loss), [x.T @ d_hidden, d_hidden.sum(0), hidden.T @ d_scores, d_scores.sum(0)]


begin, hashes, mine = time.perf_counter(), [], options.batch // pc.size()
for epoch in range(options.epochs):
    shuffled = np.random.default_rng(epoch + 1).permutation(len(train_y))
    for batch in np.split(shuffled, len(shuffled) // options.batch):
        part = batch[pc.rank() * mine : (pc.rank() + 1) * mine]  # this rank's slice of the global batch
        loss, gradient = loss_and_gradient(train_x[part], train_y[part])
        for p, g, v in zip(parameters, gradient, velocity, strict=True):
            pc.allreduce(g, "avg")
            v[...] = 0.9 * v - 0.1 * g
            p += v
    digest = hashlib.sha256(b"".join(p.tobytes() for p in parameters))
    hashes.append(pc.allgather_object(digest.hexdigest()))  # one hash per rank
    accuracy = float(((np.maximum(test_x @ w1 + b1, 0) @ w2 + b2).argmax(1) == test_y).mean())
    if pc.rank() == 0:
        print(f"epoch {epoch + 1:2}  loss {loss:.4f}  test accuracy {accuracy:.4f}", flush=True)

if pc.rank() == 0:
    if options.dump:
        np.savez(options.dump, *parameters)
    seconds, n = round(time.perf_counter() - begin, 3), options.epochs
    if options.json:
        result = {"accuracy": accuracy, "seconds": seconds, "epochs": n, "ranks": pc.size(), "hashes": hashes}
        print(json.dumps(result))
    else:
        equal = sum(len(set(epoch)) == 1 for epoch in hashes)
        print(f"test accuracy {accuracy:.1%}\n{seconds:.1f} seconds for {n} epochs")
        print(f"parameters equal on all {pc.size()} ranks after {equal} of {n} epochs")
pc.shutdown()
