"""An ordinary PyTorch script for one process, which does not know ranks.

usage: digits.py FOLDER [--epochs N] [--workers N]
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--workers", type=int, default=0)
options = parser.parse_args()

torch.manual_seed(1)
digits = load_digits()
images = torch.tensor(digits.images / 16 - 0.5, dtype=torch.float64)[:, None]
labels = torch.tensor(digits.target)
train = TensorDataset(images[:713], labels[:713])  # the last batch has 9 samples
test = TensorDataset(images[713:1200], labels[713:1200])
train_loader = DataLoader(train, batch_size=64, shuffle=True, num_workers=options.workers)
test_loader = DataLoader(test, batch_size=64)

model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.Conv2d(8, 16, 3, padding=1, stride=2),
    nn.BatchNorm2d(16, momentum=None),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(256, 10),
).double()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

for epoch in range(options.epochs):
    model.train()
    for step, (x, y) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"epoch {epoch} step {step} loss {loss.item():.12f}")
    scheduler.step()

    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in test_loader:
            correct += (model(x).argmax(1) == y).sum().item()
    print(f"epoch {epoch} accuracy {correct / len(test):.12f}")

torch.save(model.state_dict(), f"{options.folder}/model.pt")
