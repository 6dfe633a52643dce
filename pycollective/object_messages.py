"""Objects that come as messages, and what to do with what earlier calls have left over.

A call that ends early, by its deadline or Ctrl-C, leaves messages that nobody has received: pieces of a body whose
header has been taken. The next call finds them first and lets them pass, by their mark (object_parcel).
"""

from __future__ import annotations

import math

import numpy as np

from pycollective.errors import Aborted, CollectiveMismatch
from pycollective.object_call import Arrived, Call, Move
from pycollective.object_codec import Bytes
from pycollective.object_parcel import PIECE_NBYTES, Label, Piece, dtype_named

__all__ = ["body_of", "move_from"]

SMALL_NBYTES = (
    1 << 16
)  # who gives up waiting for no more than this leaves no trace, so it may be looked for first


def move_from(call: Call, peer: int, tag: int) -> Move:
    """Receives headers and pieces of one object."""

    def move(x: Bytes | Piece) -> object:
        # Posted at once, so that its sender is told if this rank gives up. Nothing old is between it and its header.
        if x.nbytes > SMALL_NBYTES:
            return call.group.recv(x, peer, tag=tag, timeout=call.clock.left_s())
        return _receive_wanted(call, x, peer, tag)

    return move


def body_of(call: Call, peer: int, label: Label, tag: int) -> Arrived:
    """The body whose header has come another way: old pieces may be in front of it."""
    receive = move_from(call, peer, tag)

    def move(piece: Bytes | Piece) -> object:
        while True:
            try:
                return receive(piece)
            except CollectiveMismatch:  # a small one, which is gone now, where a large one is wanted
                continue

    return call.body(peer, label, move)


def _receive_wanted(call: Call, x: Bytes | Piece, peer: int, tag: int) -> object:
    """Lets pieces of other bodies pass. A header where a piece is wanted stays for the next call."""
    group = call.group
    while True:
        _, name, shape, token = group._find(peer, tag, call.clock.left_s())
        other = dtype_named(name)
        if other == x.dtype or (other is None and x.dtype == np.uint8) or math.prod(shape) > PIECE_NBYTES:
            return group._receive(x, token)
        if other is None:
            del token  # puts it back: the error's traceback would keep it from the next call
            what = (
                f"rank {peer} gave up sending this object, and has sent another one since. The group goes on"
            )
            raise call.error(Aborted, what, peer)
        group._receive(np.empty(shape, other), token)
