"""What stands for objects on the wire, and need not keep to the rules of the codec."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import numpy as np


def raw(words: object, blocks: bytes = b"") -> Any:
    """What a peer sends that keeps to no rule but msgpack's. `words` may be bytes, which stand as they are."""
    skeleton = words if isinstance(words, bytes) else msgpack.packb(words)
    return np.frombuffer(bytearray(struct.pack("<Q", len(skeleton)) + skeleton + blocks), np.uint8)


def tag(code: int) -> Any:
    return msgpack.ExtType(code, b"")
