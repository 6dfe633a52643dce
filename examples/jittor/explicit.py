"""Jittor's behaviour under mpirun, made explicit.

One rank reads, the batch is that of all ranks, each sample is validated once.
mpirun -np 4 python examples/jittor/explicit.py        (or pycollective run -n 4)
"""

import argparse
import json

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import pycollective as pc

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=64, help="global: the same for any number of ranks")
parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one training for each")
parser.add_argument("--json", action="store_true", help="end with the result as one line of JSON")
options = parser.parse_args()

pc.init()


@pc.single_process
def read() -> list[np.ndarray]:
    """Runs on rank 0 alone; all ranks get the result."""
    digits = load_digits()
    return train_test_split(digits.images[:, None] / 16 - 0.5, digits.target, test_size=357, random_state=0)


images, test_images, labels, test_labels = (torch.from_numpy(x) for x in read())


def train(seed: int) -> float:
    pc.seed(seed, per_rank=False)
    network = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*network, nn.Flatten(), nn.Linear(8 * 4 * 4, 10)).double()
    model = pc.torch.SyncBatchNorm.convert(model)
    pc.broadcast(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = pc.torch.DistributedOptimizer(optimizer)  # step() uses the averaged gradients
    sampler = pc.data.BatchSampler(images, global_batch_size=options.batch, shuffle=True, seed=seed)
    for epoch in range(options.epochs):
        model.train()
        for batch in sampler:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        pc.print(f"epoch {epoch + 1} loss {pc.metrics.mean(loss):.10f}")
    return validate(model.eval())


def validate(model: nn.Module) -> float:
    """Each test sample once, on one rank, for any number of ranks."""
    mine = list(pc.data.Sampler(test_images, uneven="exact"))
    with torch.no_grad():
        return pc.metrics.compute(pc.metrics.accuracy(model(test_images[mine]), test_labels[mine])[0])


accuracies = [train(seed) for seed in options.seeds]
shown = f"test accuracy on {pc.size()} ranks: " + ", ".join(f"{each:.1%}" for each in accuracies)
pc.print(json.dumps({"ranks": pc.size(), "accuracies": accuracies}) if options.json else shown)
pc.shutdown()
