"""Raw messages in place of encoded objects, which need not follow the rules of the codec."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import numpy as np


def raw(words: object, blocks: bytes = b"") -> Any:
    """A message of a peer that follows only msgpack's rules.

    If `words` is bytes, they are sent unchanged.
    """
    skeleton = words if isinstance(words, bytes) else msgpack.packb(words)
    return np.frombuffer(bytearray(struct.pack("<Q", len(skeleton)) + skeleton + blocks), np.uint8)


def tag(code: int) -> Any:
    return msgpack.ExtType(code, b"")
