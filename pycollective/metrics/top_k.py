"""Counts correct predictions, on the device of the scores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from pycollective.base.advice import advised
from pycollective.errors import InvalidArgument
from pycollective.metrics.meter import Meter

__all__ = ["accuracy"]


@advised
def accuracy(output: Any, target: Any, *, topk: Sequence[int] = (1,)) -> tuple[Meter, ...]:  # noqa: ANN401
    """Counts the samples with the target among the k highest scores, without communication.

    It returns one Meter for each k: `total` is the number of correct samples, `weight` the number
    of samples. So meters can be added, and compute() divides the number of correct samples of all
    ranks by the number of samples of all ranks.

    Among classes with equal scores the first one ranks higher, as in argmax. nan ranks highest and
    is never correct.

    Parameters:
        output: scores, of shape (samples, classes): a NumPy or JAX array, or a torch tensor on any
            device.
        target: the correct classes, integers of shape (samples,), or (samples, 1) as in Paddle.
        topk: the values of k.

    Raises:
        InvalidArgument: the shapes are wrong, a target is not a class, or a k is not between 1 and
            the number of classes.

    Example:
        >>> import numpy as np
        >>> import pycollective as pc
        >>> scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]])
        >>> top1, top2 = pc.metrics.accuracy(scores, np.array([1, 2]), topk=(1, 2))
        >>> top1.mean, top2.mean
        (0.5, 1.0)
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(output, torch.Tensor):
        xp, where = torch, {"device": output.device}
        output, target = output.detach(), torch.as_tensor(target, device=output.device)
        is_whole = not (target.is_floating_point() or target.is_complex() or target.dtype == torch.bool)
    else:
        xp, where = np, {}
        output, target = np.asarray(output), np.asarray(target)
        is_whole = target.dtype.kind in "iu"
    if target.ndim == 2 and target.shape[1] == 1:
        target = target[:, 0]
    _check(tuple(output.shape), tuple(target.shape), is_whole, topk)
    samples, classes = output.shape
    target = xp.asarray(target, dtype=xp.int64)
    if samples and not 0 <= int(target.min()) <= int(target.max()) < classes:
        odd = int(target.min()) if int(target.min()) < 0 else int(target.max())
        raise InvalidArgument(f"accuracy: the target {odd} is no class: there are {classes}")
    if not samples:
        return tuple(Meter() for _ in topk)
    score = output[xp.arange(samples, **where), target][:, None]
    # Not `output > score`: that is false for nan, but a nan must rank higher than any score.
    ahead = ~(output <= score) | ((output == score) & (xp.arange(classes, **where) < target[:, None]))
    place = ahead.sum(1)
    return tuple(_counted(int((place < k).sum()), samples) for k in topk)


def _check(output: tuple[int, ...], target: tuple[int, ...], is_whole: bool, topk: Sequence[int]) -> None:
    if len(output) != 2 or target != output[:1] or not is_whole:
        raise InvalidArgument(
            "accuracy: output must be of shape (samples, classes) and target integers of shape (samples,), not "
            f"{output} and {'integers' if is_whole else 'others'} of {target}"
        )
    for k in topk:
        if not 1 <= k <= output[1]:
            raise InvalidArgument(f"accuracy: topk has {k}, and there are {output[1]} classes")


def _counted(right: int, samples: int) -> Meter:
    meter = Meter()
    meter.total, meter.weight = float(right), float(samples)
    return meter
