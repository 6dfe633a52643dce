"""Lightning's Trainer with validation, DDP, and a validation loss averaged over the ranks."""

import os

import lightning
import torch

lightning.seed_everything(7)
inputs = torch.arange(96.0).reshape(24, 4) / 96
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("train", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        self.log("valid", torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_epochs=3,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=os.environ["FOLDER"],
)
loaders = [torch.utils.data.DataLoader(data, batch_size=4) for _ in range(2)]
trainer.fit(Model(), *loaders)
if trainer.global_rank == 0:
    print(
        "losses", *(f"{trainer.callback_metrics[name].item():.9f}" for name in ("train", "valid")), flush=True
    )
