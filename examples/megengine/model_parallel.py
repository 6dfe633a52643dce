"""MegEngine's model parallelism: every rank has some layers, and sends their output to the next.

python examples/megengine/model_parallel.py --ranks 2
"""

import argparse
import json

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pycollective as pc
from pycollective.torch import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--ranks", type=int, default=2, choices=[1, 2, 3])
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one training for each")
parser.add_argument("--json", action="store_true", help="end with the result as one line of JSON")
options = parser.parse_args()

digits = load_digits()
split = train_test_split(digits.data / 16 - 0.5, digits.target, test_size=357, random_state=0)
images, test_images, labels, test_labels = (torch.from_numpy(x) for x in split)


def send_to_next(y: torch.Tensor) -> torch.Tensor:
    return F.send(y, pc.rank() + 1)


def receive_from_previous() -> torch.Tensor:
    return F.recv(None, pc.rank() - 1)  # shape and dtype are those of the message


def train(seed: int) -> float:
    torch.manual_seed(seed)
    layers = [torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.Tanh())]
    layers += [torch.nn.Sequential(torch.nn.Linear(48, 32), torch.nn.Tanh()), torch.nn.Linear(32, 10)]
    mine = torch.nn.Sequential(
        *layers[pc.rank() * 3 // pc.size() : (pc.rank() + 1) * 3 // pc.size()]
    ).double()
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.3)
    sampler = pc.data.BatchSampler(  # all ranks have the same batches, because it is one model
        images, global_batch_size=100, shuffle=True, seed=seed, uneven="exact", rank=0, size=1
    )
    is_first, is_last = pc.rank() == 0, pc.rank() == pc.size() - 1
    for _ in range(options.epochs):
        for batch in sampler:  # the last one has 40 samples and so another shape
            optimizer.zero_grad()
            y = mine(images[batch] if is_first else receive_from_previous())
            loss = torch.nn.functional.cross_entropy(y, labels[batch]) if is_last else send_to_next(y)
            loss.backward()  # through all ranks, from the last to the first
            optimizer.step()
    with torch.no_grad():
        y = mine(test_images if is_first else receive_from_previous())
        right = (y.argmax(1) == test_labels).double().mean() if is_last else send_to_next(y)
    return pc.broadcast(right, root=pc.size() - 1).item()


@pc.launch(n=options.ranks)
def main() -> list[float]:
    """Runs on every rank, in a world."""
    return [train(seed) for seed in options.seeds]


if __name__ == "__main__":
    results = main()  # the results of all ranks
    shown = f"test accuracy on {len(results)} ranks: " + ", ".join(f"{each:.1%}" for each in results[0])
    print(json.dumps({"ranks": len(results), "accuracies": results[0]}) if options.json else shown)
