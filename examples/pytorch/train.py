"""PyTorch DDP's features in pycollective: sampler, data parallel, no_sync, validation, checkpoints.

pycollective run -n 2 examples/pytorch/train.py --checkpoint /tmp/last.ckpt
(or torchrun, mpirun, srun, python)
"""

import argparse
import json
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import pycollective as pc

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=96, help="global: the same for any number of ranks")
parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one training for each")
parser.add_argument(
    "--checkpoint", type=Path, help="goes on from there if it exists, and is written every 5 batches"
)
parser.add_argument("--stop-after", type=int, default=0, help="end after so many batches, as if killed")
parser.add_argument("--json", action="store_true", help="end with the result as one line of JSON")
options = parser.parse_args()

pc.init()
digits = load_digits()
images, labels = torch.tensor(digits.data / 16 - 0.5), torch.tensor(digits.target)
training, testing = TensorDataset(images[:1440], labels[:1440]), TensorDataset(images[1440:], labels[1440:])


def train(seed: int) -> dict[str, object]:
    pc.seed(seed, per_rank=False)
    network = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10)).double()
    model = pc.torch.DataParallel(network)  # rank 0's parameters, and gradients averaged over all ranks
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    sampler = pc.data.BatchSampler(training, global_batch_size=options.batch, shuffle=True, seed=seed)
    loader = DataLoader(training, batch_sampler=sampler)
    batches = 0
    if options.checkpoint and pc.broadcast_object(options.checkpoint.exists()):
        state = pc.checkpoint.load(options.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        sampler.load_state_dict(state["sampler"])
    while sampler.state_dict()["epoch"] < options.epochs:
        for x, y in sampler.counting(loader):
            optimizer.zero_grad()
            half = len(y) // 2
            with model.no_sync():  # two halves make one step; the first sends nothing
                (torch.nn.functional.cross_entropy(model(x[:half]), y[:half]) / 2).backward()
            loss = torch.nn.functional.cross_entropy(model(x[half:]), y[half:])
            (loss / 2).backward()
            optimizer.step()
            batches += 1
            if options.checkpoint and batches % 5 == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                pc.checkpoint.save({**state, "sampler": sampler.state_dict()}, options.checkpoint)
            if batches == options.stop_after:
                return {}
        pc.print(f"epoch {sampler.epoch + 1}", pc.metrics.mean({"loss": loss}, weight=len(y)))
    parameters = sum(p.detach().square().sum().item() for p in model.parameters())
    return {"accuracy": accuracy_of(model.module), "parameters": parameters.hex()}


def accuracy_of(model: torch.nn.Module) -> float:
    """Each test sample once, on one rank, for any number of ranks."""
    sampler = pc.data.BatchSampler(testing, batch_size_per_rank=64, uneven="exact")
    accuracy = pc.metrics.Meter()
    with torch.no_grad():
        for x, y in (testing[batch] for batch in sampler):
            accuracy.update(pc.metrics.accuracy(model(x), y)[0])
    return accuracy.compute()


results = [train(seed) for seed in options.seeds]
shown = ", ".join(f"{each['accuracy']:.1%}" if each else "stopped before the end" for each in results)
shown = f"test accuracy on {pc.size()} ranks: {shown}"
pc.print(json.dumps({"ranks": pc.size(), "runs": results}) if options.json else shown)
pc.shutdown()
