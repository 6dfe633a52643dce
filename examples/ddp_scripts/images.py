"""The training data and networks: two sets of images, and two networks that accept both."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import interpolate
from torch.utils.data import TensorDataset

PIXELS = {"digits": (1, 8, 8), "synthetic": (3, 32, 32)}


def images(name: str, dtype: torch.dtype) -> tuple[TensorDataset, TensorDataset]:
    """For training and for testing; the same on every rank and in every run."""
    if name == "digits":
        digits = load_digits()
        x, y, cut = torch.tensor(digits.images[:, None] / 16 - 0.5), torch.tensor(digits.target), 1440
    else:
        x, y, cut = *like_cifar(2500), 2000
    return TensorDataset(x[:cut].to(dtype), y[:cut]), TensorDataset(x[cut:].to(dtype), y[cut:])


def like_cifar(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of CIFAR's shape: a blurred pattern per class, shifted at random, with noise."""
    generator = torch.Generator().manual_seed(0)
    patterns = interpolate(torch.randn(10, 3, 8, 8, generator=generator), scale_factor=4, mode="bilinear")
    labels = torch.arange(n) % 10
    shifts = torch.randint(32, (n, 2), generator=generator).tolist()
    shifted = [patterns[y].roll(s, (1, 2)) for y, s in zip(labels.tolist(), shifts, strict=True)]
    return torch.stack(shifted) + 1.5 * torch.randn(n, 3, 32, 32, generator=generator), labels


def network(name: str, data: str, dtype: torch.dtype) -> nn.Module:
    """Made on every rank after the same seed, so equal."""
    channels, height, width = PIXELS[data]
    if name == "perceptron":
        layers = [nn.Flatten(), nn.Linear(channels * height * width, 48), nn.ReLU(), nn.Linear(48, 10)]
    else:
        layers = [*convolution(channels, 16, 1), *convolution(16, 32, 2), *convolution(32, 64, 2)]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*layers).to(dtype)


def convolution(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
