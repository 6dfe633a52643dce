"""Compares one process, threads, ranks, and ranks with mixed precision: time and accuracy.

python examples/ddp_scripts/compare.py --rounds 3
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).parent / "train.py"
WAYS = {  # ranks, flags
    "one process": (1, []),
    "threaded DP, 2 threads": (1, ["--threads", "2"]),
    "threaded DP, 2 threads + AMP": (1, ["--threads", "2", "--amp"]),
    "DDP, 2 ranks": (2, []),
    "DDP, 2 ranks + SyncBN": (2, ["--sync-bn"]),
    "DDP, 2 ranks + AMP": (2, ["--amp"]),
}


def trained(ranks: int, flags: list[str]) -> list[dict[str, float]]:
    """Returns for each seed the median time of an epoch, and the figures of the test set."""
    launcher = [sys.executable, "-m", "pycollective", "run", "-n", str(ranks), "--no-prefix"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # no other threads than those of the comparison
    done = subprocess.run(
        [*launcher, TRAIN, "--json", *flags], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])["runs"]


parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=3, help="rounds with one run of each kind")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--data", default="synthetic")
options = parser.parse_args()
common = ["--data", options.data, "--epochs", str(options.epochs), "--seed", "0", "1", "2"]
runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
for number in range(options.rounds):
    for way, (ranks, flags) in WAYS.items():
        print(f"round {number + 1} of {options.rounds}: {way}", file=sys.stderr)
        runs[way] += trained(ranks, [*flags, *common])
print("| Training | s per epoch: median (lowest, highest run) | test accuracy, three seeds |\n|---|---|---|")
for way, figures in runs.items():
    seconds = [figure["seconds"] for figure in figures]
    accuracies = ", ".join(f"{100 * figure['top1']:.1f}" for figure in figures[:3])
    spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f}, {max(seconds):.2f})"
    print(f"| {way} | {spread} | {accuracies} % |")
