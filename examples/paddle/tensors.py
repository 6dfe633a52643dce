"""Paddle's own tensors, layers, loss and optimizer; gradients are sent while backward() runs.

pycollective run -n 2 examples/paddle/tensors.py
(or paddle.distributed.launch, mpirun, srun, python)
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
split = train_test_split(pixels, digits.target, test_size=357, random_state=0)
images, test_images, labels, test_labels = map(paddle.to_tensor, split)


def train(seed: int) -> float:
    paddle.seed(pc.seed(seed) % 2**32)  # a different one on every rank
    layers = paddle.nn.Sequential(paddle.nn.Linear(64, 48), paddle.nn.ReLU(), paddle.nn.Linear(48, 10))
    model = pc.paddle.DataParallel(layers)  # now all ranks have rank 0's parameters
    optimizer = paddle.optimizer.SGD(learning_rate=0.3, parameters=model.parameters())
    data = (images, labels)
    loader = pc.data.DataLoader(data, global_batch_size=options.batch, shuffle=True, seed=seed)
    for epoch in range(options.epochs):
        for x, y in loader:  # this rank's part of each batch
            loss = paddle.nn.functional.cross_entropy(model(x), y)
            loss.backward()  # returns with gradients averaged over all ranks
            optimizer.step()
            optimizer.clear_grad()
        pc.print(f"epoch {epoch + 1}", pc.metrics.mean({"loss": loss}, weight=len(y)))
    mine = list(pc.data.Sampler(test_images, uneven="exact"))
    with paddle.no_grad():
        scores = model(test_images[mine])
    return pc.metrics.compute(pc.metrics.accuracy(scores, test_labels[mine])[0])


accuracies = [train(seed) for seed in options.seeds]
shown = f"test accuracy on {pc.size()} ranks: " + ", ".join(f"{each:.1%}" for each in accuracies)
pc.print(json.dumps({"ranks": pc.size(), "accuracies": accuracies}) if options.json else shown)
pc.shutdown()
