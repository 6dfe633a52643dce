"""Objects that come as messages, and what to do with what earlier calls have left over.

A call that ends early, by its deadline or Ctrl-C, leaves messages that nobody has received: pieces of a body whose
header has been taken. The next call finds them first and lets them pass, by their mark (object_message).
"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from pycollective.errors import Aborted, CollectiveTimeout, PeerInterrupted
from pycollective.objects.object_call import Call, Move
from pycollective.objects.object_codec import Bytes
from pycollective.objects.object_message import PIECE_NBYTES, Piece, dtype_named

__all__ = ["move_from"]


def move_from(call: Call, peer: int, tag: int) -> Move:
    """Receives a header, or a piece of the object that the header announced."""
    group = call.group

    def move(x: Bytes | Piece) -> object:
        while True:
            _, name, shape, token = group._find(peer, tag, call.clock.left_s())
            found = dtype_named(name)
            if found == x.dtype or (found is None and x.dtype == np.uint8):
                return group._receive(x, token, 0)
            if found is None:
                del token  # puts it back: the error's traceback would keep it from the next call
                what = f"rank {peer} gave up sending this object, and has sent another one since. The group goes on"
                raise call.error(Aborted, what, peer)
            if math.prod(shape) > PIECE_NBYTES:  # none of ours, and too much to take: CollectiveMismatch
                return group._receive(x, token, 0)
            with suppress(CollectiveTimeout, PeerInterrupted, Aborted):  # its sender may have given up, too
                group._receive(np.empty(shape, found), token, None)

    return move
