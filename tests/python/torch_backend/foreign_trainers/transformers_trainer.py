"""The Trainer of transformers, with evaluation, on a small model that is made here."""

import os

import torch
import transformers

transformers.set_seed(7)
config = transformers.GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2)
rows = torch.arange(24 * 8).reshape(24, 8) % 32
data = [{"input_ids": row, "labels": row} for row in rows]
trainer = transformers.Trainer(
    transformers.GPT2LMHeadModel(config),
    transformers.TrainingArguments(
        output_dir=os.environ["FOLDER"],
        use_cpu=True,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    ),
    train_dataset=data,
    eval_dataset=data[:8],
)
trained, evaluated = trainer.train(), trainer.evaluate()
if trainer.is_world_process_zero():
    print("losses", f"{trained.training_loss:.9f}", f"{evaluated['eval_loss']:.9f}", flush=True)
torch.distributed.destroy_process_group()
