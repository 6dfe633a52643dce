"""ignite's Parallel and auto_model, which omits DDP if it does not know the backend's name."""

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events


def train(_):
    torch.manual_seed(7)
    inputs = torch.arange(96.0).reshape(24, 4) / 96
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = idist.auto_dataloader(data, batch_size=8, shuffle=False)
    model = idist.auto_model(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    )
    assert isinstance(model, torch.nn.parallel.DistributedDataParallel), type(model)
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))

    def step(_, batch):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    engine = Engine(step)
    losses = []

    @engine.on(Events.EPOCH_COMPLETED)
    def _(engine):
        losses.append(idist.all_reduce(engine.state.output, "SUM") / idist.get_world_size())

    engine.run(loader, max_epochs=3)
    if idist.get_rank() == 0:
        print("losses", *(f"{loss:.9f}" for loss in losses), flush=True)


with idist.Parallel(backend="gloo") as parallel:
    parallel.run(train)
