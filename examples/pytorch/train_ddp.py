"""An unmodified program for torch.distributed, except for one word.

torchrun --nproc-per-node 2 examples/pytorch/train_ddp.py        (or pycollective run -n 2)
"""

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("pycollective")  # instead of "gloo"

digits = load_digits()
images, labels = torch.tensor(digits.data / 16 - 0.5), torch.tensor(digits.target)
training = TensorDataset(images[:1440], labels[:1440])
sampler = DistributedSampler(training, shuffle=True)
loader = DataLoader(training, batch_size=96 // dist.get_world_size(), sampler=sampler)

torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10)).double()
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
for epoch in range(6):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
if dist.get_rank() == 0:
    accuracy = (model(images[1440:]).argmax(1) == labels[1440:]).double().mean().item()
    print(f"{os.environ['WORLD_SIZE']} ranks, test accuracy {accuracy:.4f}")
dist.destroy_process_group()
