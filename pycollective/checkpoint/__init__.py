"""Checkpoints: one rank writes a file that is never torn, one rank reads it for all, and all hear of what goes wrong.

pc.checkpoint.save({"model": model.state_dict(), "epoch": 3}, "last.ckpt")
state = pc.checkpoint.load("last.ckpt")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pycollective.base.foreign_words import missing
from pycollective.checkpoint.calls import load, save

__all__ = ["load", "save"]

if not TYPE_CHECKING:  # to which every name would seem to be there

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__)
