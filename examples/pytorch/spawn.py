"""A counterpart of torch.multiprocessing.spawn: ranks started from Python, with results of all.

If a rank fails, its exception is raised.
python examples/pytorch/spawn.py
"""

import torch

import pycollective as pc


def main(lr: float) -> float:
    """Runs on every rank, in a world."""
    pc.seed(0)  # a different stream on every rank: each has its own data
    model = pc.torch.DataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(200):
        x = torch.randn(32, 3)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), x @ torch.tensor([[1.0], [2.0], [3.0]])).backward()
        optimizer.step()
    return model.module.weight.sum().item()


if __name__ == "__main__":
    print([round(total, 2) for total in pc.run(main, 0.3, n=2)])
