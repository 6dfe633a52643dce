"""Receives objects that are sent as messages, and drops messages left over from earlier calls.

A call that ends early, at its deadline or by Ctrl-C, may leave pieces of a body in the queue. The
next call receives the pieces first, recognizes them by their mark (object_message), and drops them.
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
    """Returns a function that receives a header, or a piece of the body that a header announced."""
    group = call.group

    def move(x: Bytes | Piece) -> object:
        while True:
            _, name, shape, token = group._find(peer, tag, call.clock.left_s())
            found = dtype_named(name)
            if found == x.dtype or (found is None and x.dtype == np.uint8):
                return group._receive(x, token, 0)
            if found is None:
                # Put the message back into the queue. Otherwise the error's traceback would keep
                # the token alive.
                del token
                what = f"rank {peer} gave up sending this object, and has sent another one since. The group goes on"
                raise call.error(Aborted, what, peer)
            # Too large for a piece. Receiving it into `x` raises CollectiveMismatch.
            if math.prod(shape) > PIECE_NBYTES:
                return group._receive(x, token, 0)
            # A piece of an earlier call is dropped. Its sender may have ended that call early too.
            with suppress(CollectiveTimeout, PeerInterrupted, Aborted):
                group._receive(np.empty(shape, found), token, None)

    return move
