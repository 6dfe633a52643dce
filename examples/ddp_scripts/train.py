"""Scripts around DDP in one: AMP, gradient accumulation, SyncBN, reduced metrics, exact validation.

pycollective run -n 2 examples/ddp_scripts/train.py --sync-bn --amp        (or torchrun, mpirun,
srun, python)
"""

import contextlib
import json
import statistics
import time

import torch
from images import images, network
from start import flags, join
from threads import ThreadedDataParallel
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from validation import validate

import pycollective as pc

options = flags()
join(options.ip, options.port)
if options.batch_size < options.grad_accu_steps * pc.size():
    raise SystemExit("--grad-accu-steps: each pass of each rank needs a sample of --batch-size")
dtype, low = getattr(torch, options.dtype), getattr(torch, options.amp or "bfloat16")
training, testing = images(options.data, dtype)


def train(seed: int) -> dict[str, object]:
    pc.seed(seed, per_rank=False)
    net = network(options.network, options.data, dtype)
    net = pc.torch.SyncBatchNorm.convert(net) if options.sync_bn else net
    model = ThreadedDataParallel(net, options.threads) if options.threads else pc.torch.DataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cpu", enabled=options.amp == "float16")  # bfloat16 needs none
    sampler = pc.data.BatchSampler(
        training, global_batch_size=options.batch_size, shuffle=True, seed=seed, uneven="drop"
    )
    loader = DataLoader(training, sampler=sampler, batch_size=None)  # the sampler makes batches
    path, begin, seconds = options.checkpoint and options.checkpoint / f"{seed}.ckpt", 0, []
    if path and pc.broadcast_object(path.exists()):
        state = pc.checkpoint.load(path)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
        begin = state["epochs"]
    for epoch in range(begin, options.epochs):
        began, loss_of_all = time.perf_counter(), pc.metrics.Meter()
        sampler.set_epoch(epoch)
        net.train()
        for x, y in loader:
            optimizer.zero_grad()
            passes = list(zip(*(t.tensor_split(options.grad_accu_steps) for t in (x, y)), strict=True))
            for number, (images_, labels) in enumerate(passes, 1):
                last = number == len(passes)
                with contextlib.nullcontext() if last else model.no_sync():  # only the last one is reduced
                    with torch.autocast("cpu", low, enabled=bool(options.amp)):
                        loss = cross_entropy(model(images_), labels)
                    scaler.scale(loss * (len(labels) / len(y))).backward()
                loss_of_all.update(loss, len(labels))
            scaler.step(optimizer)
            scaler.update()
        seconds.append(time.perf_counter() - began)
        pc.print(f"epoch {epoch + 1}: {seconds[-1]:.2f} s, loss {loss_of_all.compute():.4f}")
        if path:
            states = {"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
            pc.checkpoint.save({"model": net.state_dict(), **states, "epochs": epoch + 1}, path)
    return {"seconds": statistics.median(seconds) if seconds else None, **validate(net, testing)}


runs = [train(seed) for seed in options.seed]
shown = f"test accuracy on {pc.size()} ranks: " + ", ".join(f"{run['top1']:.1%}" for run in runs)
pc.print(json.dumps({"ranks": pc.size(), "runs": runs}) if options.json else shown)
pc.shutdown()
