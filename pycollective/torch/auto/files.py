"""Makes torch.save() write on rank 0 only; the other ranks continue when the file exists."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from typing import Any

import torch

from pycollective._core import Group
from pycollective.errors import CollectiveTimeout
from pycollective.objects.remote_error import record_of, reraised
from pycollective.runtime.store import store
from pycollective.torch.auto.batches import NAME
from pycollective.torch.auto.replaced import replace

__all__ = ["install"]


def install(undone: contextlib.ExitStack, group: Group) -> None:
    """Replaces torch.save(). `undone` restores it.

    A torch.save() that only rank 0 calls, as under `if rank == 0`, does not wait for other ranks.
    """
    plain = torch.save
    rank, size = group.rank, group.size
    outcomes = store("pycollective.torch.auto/saved")
    saved: Counter[str] = Counter()

    def save(obj: object, f: Any, *args: Any, **named: Any) -> None:  # noqa: ANN401  as torch has it
        if not isinstance(f, (str, bytes, os.PathLike)):  # an open file or a buffer is local to each rank
            plain(obj, f, *args, **named)
            return
        path = os.fsdecode(f)
        # Digits are ignored, because names may contain the time, which may differ between ranks.
        name = re.sub(r"\d+", "#", path)
        saved[name] += 1
        keys = [f"{name}/{saved[name]}/{each}" for each in range(size)]
        if rank != 0:
            _receive_error(path, keys[rank])
            return
        words: Any = None
        try:
            plain(obj, f, *args, **named)
        except BaseException as error:
            words = record_of(error)
            raise
        finally:
            for key in keys[1:]:
                outcomes.set(key, words)

    def _receive_error(path: str, key: str) -> None:
        try:
            words: Any = outcomes.pop(key)
        except CollectiveTimeout as error:
            error.args = (
                f"{NAME}: torch.save({path!r}) writes on rank 0, which did not come there: {error}",
            )
            raise
        if words is not None:
            raise reraised(words, 0)

    replace(undone, torch, "save", save)
