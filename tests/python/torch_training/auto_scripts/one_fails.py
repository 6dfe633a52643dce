"""One rank raises in the middle of training: all end."""

import torch
from torch.utils.data import DataLoader

import pycollective as pc

assert len(set(pc.allgather_object(hash("a")))) == 1  # sets of strings have the same order
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, x in enumerate(DataLoader(torch.ones(40, 1), batch_size=4)):
    if step == 3 and pc.rank() == 1:
        raise RuntimeError("no more")
    model(x).mean().backward()
    optimizer.step()
