"""A training loop with accelerate: it makes the process group, names gloo, and gathers."""

import accelerate
import torch

accelerator = accelerate.Accelerator(cpu=True)
accelerate.utils.set_seed(7)
inputs = torch.arange(96.0).reshape(24, 4) / 96
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(data, batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for _ in range(3):
    for batch, target in loader:
        loss = torch.nn.functional.mse_loss(model(batch), target)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach()).mean().item())
objects = accelerate.utils.gather_object([accelerator.process_index])
if accelerator.is_main_process:
    assert objects == [*range(accelerator.num_processes)], objects
    print("losses", *(f"{loss:.9f}" for loss in losses), flush=True)
accelerator.end_training()
