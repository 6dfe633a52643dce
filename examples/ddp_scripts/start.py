"""The flags of scripts around DDP, and the connection of the ranks."""

import argparse
import os
from pathlib import Path

from images import PIXELS

import pycollective as pc


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="one training for each")
    parser.add_argument("--batch-size", "--batch_size", type=int, default=96, help="of all ranks together")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.1)
    low = ["bfloat16", "float16"]
    parser.add_argument("--amp", nargs="?", const=low[0], choices=low, help="mixed precision")
    parser.add_argument("--grad-accu-steps", "--grad_accu_steps", type=int, default=1)
    parser.add_argument("--sync-bn", action="store_true", help="normalize over the samples of all ranks")
    parser.add_argument("--ip", help="of rank 0: for ranks started by hand, with RANK and WORLD_SIZE set")
    parser.add_argument("--port", type=int, default=23456)
    parser.add_argument("--local-rank", "--local_rank", help="ignored: old launchers add it")
    parser.add_argument("--data", choices=list(PIXELS), default="digits")
    parser.add_argument("--network", choices=["convolutions", "perceptron"], default="convolutions")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--checkpoint", type=Path, help="folder: goes on from there, saves after each epoch")
    parser.add_argument("--threads", type=int, help="one process with so many threads: to compare")
    parser.add_argument("--json", action="store_true", help="end with the result as one line of JSON")
    options = parser.parse_args()
    if options.threads and options.sync_bn:
        parser.error("--threads has no --sync-bn, as torch.nn.DataParallel has none")
    return options


def join(ip: str | None, port: int) -> None:
    by_hand = "WORLD_SIZE" in os.environ and "MASTER_ADDR" not in os.environ
    if ip and by_hand:
        pc.init(f"{ip}:{port}", rank=int(os.environ["RANK"]), size=int(os.environ["WORLD_SIZE"]))
        return
    pc.init()  # the launcher provides rank, size and address
    if ip:
        pc.print("--ip and --port are ignored: they are for ranks started by hand")
