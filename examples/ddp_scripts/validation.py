"""Figures of the whole test set: each sample counts once, on one rank, for any number of ranks."""

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import pycollective as pc


@torch.no_grad()
def validate(net: torch.nn.Module, testing: TensorDataset) -> dict[str, float]:
    net.eval()
    pc.broadcast(list(net.buffers()))  # without --sync-bn every rank has its own running means
    sampler = pc.data.BatchSampler(testing, batch_size_per_rank=100, uneven="exact")
    loss, top1, top5 = (pc.metrics.Meter() for _ in range(3))
    for x, y in DataLoader(testing, sampler=sampler, batch_size=None):
        scores = net(x)
        loss.update(cross_entropy(scores, y), len(y))
        one, five = pc.metrics.accuracy(scores, y, topk=(1, 5))
        top1.update(one)
        top5.update(five)
    return pc.metrics.compute({"loss": loss, "top1": top1, "top5": top5})
