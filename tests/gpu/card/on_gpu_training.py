"""A small model on a GPU and its training, which on_gpu.py makes on one rank and on several."""

from __future__ import annotations

from typing import Any


def trained(torch: Any, model: Any, part: slice) -> list[Any]:
    """Returns the parameters after three steps on this part of each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    source = torch.Generator().manual_seed(7)
    for _ in range(3):
        x, y = torch.randn(16, 32, generator=source), torch.randn(16, 4, generator=source)
        optimizer.zero_grad()
        (model(x[part].cuda()) - y[part].cuda()).square().mean().backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def layers_of(torch: Any) -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 4)]
    return torch.nn.Sequential(*layers).cuda()
