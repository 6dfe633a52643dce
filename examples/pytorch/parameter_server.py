"""A parameter server: rank 0 keeps the weights, the others pull, compute and push independently.

pycollective run -n 3 examples/pytorch/parameter_server.py
"""

import torch

import pycollective as pc

pc.init()
torch.manual_seed(0)
target = torch.tensor([[1.0], [2.0], [3.0]])
weights, pushes = torch.zeros(3, 1), [0]


def pull() -> torch.Tensor:
    return weights


def push(gradient: torch.Tensor) -> int:
    weights.sub_(0.05 * gradient)  # calls are served one at a time, so no lock is needed
    pushes[0] += 1
    return pushes[0]


with pc.serving(pull, push):  # every rank serves; the block ends when all ranks have left it
    if pc.rank() != 0 or pc.size() == 1:
        torch.manual_seed(pc.rank())
        for _ in range(200):
            mine = pc.call(pull, rank=0).clone().requires_grad_()
            x = torch.randn(32, 3)
            torch.nn.functional.mse_loss(x @ mine, x @ target).backward()
            pc.call(push, mine.grad, rank=0)

pc.print([round(w, 2) for w in weights.flatten().tolist()], "after", pushes[0], "pushes")
pc.shutdown()
