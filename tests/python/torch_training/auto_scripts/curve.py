"""A script in the style of Jittor: a dataset class, and the batch size of all ranks together."""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import pycollective as pc

pc.init()
torch.manual_seed(0)
np.random.seed(0)


class Curve(Dataset):
    def __init__(self, count):
        self.x = np.random.rand(count, 1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        return self.x[place], np.sin(3 * self.x[place])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(1, 10)
        self.norm = nn.BatchNorm1d(10)
        self.layer2 = nn.Linear(10, 1)

    def forward(self, x):
        return self.layer2(torch.relu(self.norm(self.layer1(x))))


train_set, val_set = Curve(205), Curve(50)
# of all ranks together; the last batch has 5 samples
train_loader = DataLoader(train_set, batch_size=50, shuffle=True)
val_loader = DataLoader(val_set, batch_size=20)
model = Model().double()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

for _ in range(4):
    model.train()
    for x, y in train_loader:
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if pc.rank() == 0:
            print(f"loss {loss.item():.12f}")
    model.eval()
    total = 0.0
    for x, y in val_loader:
        with torch.no_grad():
            total += (model(x) - y).square().sum().item()
    if pc.rank() == 0:
        print(f"validation {total / len(val_set):.12f}")

if pc.rank() == 0:
    torch.save(model, f"{sys.argv[1]}/model.pt")
pc.shutdown()
