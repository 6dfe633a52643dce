"""Paddle's own tensors: its model, its loss, its optimizer, and gradients that are reduced in place.

pycollective run -n 2 examples/paddle/tensors.py        (or paddle.distributed.launch, mpirun, srun, python)
"""

import argparse
import json

import paddle
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pycollective as pc

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch", type=int, default=96, help="global: the same for any number of ranks")
parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one training for each")
parser.add_argument("--json", action="store_true", help="end with the result as one line of JSON")
options = parser.parse_args()

pc.init()
digits = load_digits()
pixels = (digits.data / 16 - 0.5).astype("float32")
images, test_images, labels, test_labels = train_test_split(
    pixels, digits.target, test_size=357, random_state=0
)


def train(seed: int) -> float:
    paddle.seed(pc.seed(seed) % 2**32)  # another one on every rank
    model = paddle.nn.Sequential(paddle.nn.Linear(64, 48), paddle.nn.ReLU(), paddle.nn.Linear(48, 10))
    pc.broadcast(list(model.parameters()))  # now all have rank 0's
    optimizer = paddle.optimizer.SGD(learning_rate=0.3, parameters=model.parameters())
    sampler = pc.data.BatchSampler(images, global_batch_size=options.batch, shuffle=True, seed=seed)
    for epoch in range(options.epochs):
        for batch in sampler:
            scores = model(paddle.to_tensor(images[batch]))
            loss = paddle.nn.functional.cross_entropy(scores, paddle.to_tensor(labels[batch]))
            loss.backward()
            pc.allreduce([parameter.grad for parameter in model.parameters()], "avg")
            optimizer.step()
            optimizer.clear_grad()
        pc.print(f"epoch {epoch + 1}", pc.metrics.mean({"loss": loss.item()}, weight=len(batch)))
    mine = list(pc.data.Sampler(test_images, uneven="exact"))
    scores = model(paddle.to_tensor(test_images[mine])).numpy()
    return pc.metrics.compute(pc.metrics.accuracy(scores, test_labels[mine])[0])


accuracies = [train(seed) for seed in options.seeds]
shown = f"test accuracy on {pc.size()} ranks: " + ", ".join(f"{each:.1%}" for each in accuracies)
pc.print(json.dumps({"ranks": pc.size(), "accuracies": accuracies}) if options.json else shown)
pc.shutdown()
