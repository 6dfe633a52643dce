"""torch.multiprocessing.spawn's job: ranks started from Python, results of all, the first exception if one fails.

python examples/pytorch/spawn.py
"""

import torch

import pycollective as pc


def main(lr: float) -> float:
    """On every rank, with a world around it."""
    pc.seed(0)  # another stream on every rank: each has data of its own
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
