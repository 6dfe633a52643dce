"""A script for one process, as Jittor's are, in PyTorch. No line of it deals with ranks.

mpirun -np 4 python -m pycollective.torch.auto examples/jittor/train.py
(or pycollective run -n 4 -m ...)
"""

import argparse
import json

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one training for each")
parser.add_argument("--json", action="store_true", help="end with the result as one line of JSON")
options = parser.parse_args()

digits = load_digits()
split = train_test_split(digits.images[:, None] / 16 - 0.5, digits.target, test_size=357, random_state=0)
images, test_images, labels, test_labels = (torch.from_numpy(x) for x in split)
training, testing = TensorDataset(images, labels), TensorDataset(test_images, test_labels)


def train(seed: int) -> float:
    torch.manual_seed(seed)
    network = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*network, nn.Flatten(), nn.Linear(8 * 4 * 4, 10)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(options.epochs):
        model.train()
        for x, y in DataLoader(training, batch_size=options.batch, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1} loss {loss.item():.10f}")
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(testing, batch_size=100))
    return right / len(testing)


accuracies = [train(seed) for seed in options.seeds]
shown = "test accuracy: " + ", ".join(f"{each:.1%}" for each in accuracies)
print(json.dumps({"accuracies": accuracies}) if options.json else shown)
