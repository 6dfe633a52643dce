"""Checkpoints: one rank writes or reads a complete file for all ranks, and errors reach every rank.

pc.checkpoint.save({"model": model.state_dict(), "epoch": 3}, "last.ckpt")
state = pc.checkpoint.load("last.ckpt")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pycollective.base.foreign_words import missing
from pycollective.checkpoint.calls import load, save

__all__ = ["load", "save"]

if not TYPE_CHECKING:  # with a __getattr__, type checkers would accept every name

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__)
