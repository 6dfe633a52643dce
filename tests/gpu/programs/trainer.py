"""The Trainer of transformers, which knows backends by name, trains over pycollective.

PYCOLLECTIVE_REPLACES makes it do so.
"""

from __future__ import annotations

import copy
import os
import tempfile
from typing import Any

import torch
import torch.distributed as dist
import transformers
from program_context import DEVICE, proved

STEPS, RATE = 3, 0.05

dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
if DEVICE == "cuda":
    os.environ["LOCAL_RANK"] = "0"  # Trainer takes the GPU of that number, and here the ranks share one
torch.manual_seed(7)
config = transformers.GPT2Config(
    vocab_size=32,
    n_positions=8,
    n_embd=16,
    n_layer=1,
    n_head=2,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
)
model: Any = transformers.GPT2LMHeadModel(config)
model.to(DEVICE)
alone = copy.deepcopy(model)
rows = torch.arange(8 * 8).view(8, 8).mul(5) % 32
labels = rows.clone()
labels[:, 0] = -100  # nothing predicts the first, and Trainer counts what is predicted
# Each step takes all of it.
data: Any = [{"input_ids": x, "labels": y} for x, y in zip(rows, labels, strict=True)]

with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        use_cpu=DEVICE == "cpu",
        max_steps=STEPS,
        per_device_train_batch_size=4,
        max_grad_norm=0.0,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    same = torch.optim.lr_scheduler.LambdaLR(sgd, lambda step: 1.0)
    trainer = transformers.Trainer(model, arguments, train_dataset=data, optimizers=(sgd, same))
    said = trainer.train()
assert dist.get_world_size() == 2
behind = type(dist.distributed_c10d._get_default_group()).__name__
assert "Pycollective" in behind, f"the default group is a {behind}"

losses = []
optimizer = torch.optim.SGD(alone.parameters(), lr=RATE)
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = alone(input_ids=rows.to(DEVICE), labels=labels.to(DEVICE)).loss
    loss.backward()
    optimizer.step()
    losses.append(float(loss))
mean = torch.tensor(said.training_loss, device=DEVICE)  # each rank has its own
dist.all_reduce(mean, dist.ReduceOp.AVG)
assert abs(float(mean) - sum(losses) / STEPS) < 1e-4, (mean, losses)
for mine, wanted in zip(model.parameters(), alone.parameters(), strict=True):
    torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-5)
dist.destroy_process_group()
proved(
    f"{STEPS} steps of Trainer have the parameters of one process, losses {losses[0]:.4f} to {losses[-1]:.4f}"
)
