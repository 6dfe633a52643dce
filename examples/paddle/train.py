"""Paddle's functions in PyTorch: a small ResNet on synthetic images. See also tensors.py.

pycollective run -n 2 examples/paddle/train.py   (or paddle.distributed.launch, torchrun, mpirun)
"""

import argparse
import json

import torch
from torch import nn
from torch.nn.functional import cross_entropy, interpolate
from torch.utils.data import DataLoader, TensorDataset

import pycollective as pc

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch", type=int, default=48, help="global: the same for any number of ranks")
parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one training for each")
parser.add_argument("--json", action="store_true", help="end with the result as one line of JSON")
options = parser.parse_args()


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    norm = nn.BatchNorm2d(outputs, momentum=0.3)  # short training needs quick running statistics
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), norm)


class Block(nn.Module):  # two convolutions and a shortcut around them
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = convolution(inputs, outputs, stride), convolution(outputs, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.second(self.first(x).relu()) + self.shortcut(x)).relu()


def resnet() -> nn.Module:
    blocks = [convolution(3, 8, stride=2), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def synthetic(n: int, seed: int) -> TensorDataset:  # ten patterns of 32 x 32 in three colours, with noise
    patterns = torch.randn(10, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(n) % 10
    noise = torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(interpolate(patterns, scale_factor=4)[labels] + noise, labels)


pc.init()
training, testing = synthetic(480, seed=1), synthetic(200, seed=2)


def train(seed: int) -> float:
    pc.seed(seed, per_rank=False)
    model = pc.torch.DataParallel(pc.torch.SyncBatchNorm.convert(resnet()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = pc.data.DataLoader(training, global_batch_size=options.batch, shuffle=True, seed=seed)
    for epoch in range(options.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        pc.print(f"epoch {epoch + 1}", pc.metrics.mean({"loss": loss}, weight=len(y)))
    model.eval()
    sampler = pc.data.BatchSampler(testing, batch_size_per_rank=50, uneven="exact")
    accuracy = pc.metrics.Meter()
    with torch.no_grad():
        for x, y in DataLoader(testing, batch_sampler=sampler):
            accuracy.update(pc.metrics.accuracy(model(x), y)[0])
    return accuracy.compute()


accuracies = [train(seed) for seed in options.seeds]
shown = f"test accuracy on {pc.size()} ranks: " + ", ".join(f"{each:.1%}" for each in accuracies)
pc.print(json.dumps({"ranks": pc.size(), "accuracies": accuracies}) if options.json else shown)
pc.shutdown()
