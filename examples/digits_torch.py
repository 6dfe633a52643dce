"""Data-parallel training in PyTorch: handwritten digits, convolutions, any number of ranks.

pycollective run -n 4 examples/digits_torch.py
"""

import argparse
import hashlib
import json
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import pycollective as pc

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--batch", type=int, default=120, help="global: the same for any number of ranks")
parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
parser.add_argument("--dump", metavar="PATH", help="rank 0 writes the parameters here (.npz)")
parser.add_argument("--json", action="store_true", help="end with the result as one line of JSON")
options = parser.parse_args()

pc.init()
if options.batch % pc.size():
    parser.error(f"--batch {options.batch} cannot be cut into {pc.size()} equal slices")
dtype = getattr(torch, options.dtype)
digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))  # the same on every rank
images = torch.tensor(digits.images[order] / 16 - 0.5, dtype=dtype)[:, None]
labels = torch.tensor(digits.target[order])
train_x, test_x, train_y, test_y = images[:1440], images[1440:], labels[:1440], labels[1440:]

torch.manual_seed(pc.rank())  # every rank starts differently; the broadcast makes them equal
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.ReLU(),
    nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
).to(dtype)  # fmt: skip
for p in model.parameters():
    pc.broadcast(p, root=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

begin, hashes, mine = time.perf_counter(), [], options.batch // pc.size()
for epoch in range(options.epochs):
    shuffled = torch.tensor(np.random.default_rng(epoch + 1).permutation(len(train_y)))
    for batch in shuffled.split(options.batch):
        part = batch[pc.rank() * mine : (pc.rank() + 1) * mine]  # this rank's slice of the global batch
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(train_x[part]), train_y[part])
        loss.backward()
        for p in model.parameters():
            pc.allreduce(p.grad, "avg")
        optimizer.step()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    hashes.append(pc.allgather_object(digest.hexdigest()))  # one hash per rank
    with torch.no_grad():
        accuracy = (model(test_x).argmax(1) == test_y).double().mean().item()
    if pc.rank() == 0:
        print(f"epoch {epoch + 1:2}  loss {loss.item():.4f}  test accuracy {accuracy:.4f}", flush=True)

if pc.rank() == 0:
    if options.dump:
        np.savez(options.dump, *[p.detach().numpy() for p in model.parameters()])
    seconds, n = round(time.perf_counter() - begin, 3), options.epochs
    if options.json:
        result = {"accuracy": accuracy, "seconds": seconds, "epochs": n, "ranks": pc.size(), "hashes": hashes}
        print(json.dumps(result))
    else:
        equal = sum(len(set(epoch)) == 1 for epoch in hashes)
        print(f"test accuracy {accuracy:.1%}\n{seconds:.1f} seconds for {n} epochs")
        print(f"parameters equal on all {pc.size()} ranks after {equal} of {n} epochs")
pc.shutdown()
