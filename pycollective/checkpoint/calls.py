"""save() and load(): one rank accesses the file, and all ranks receive the result or the error."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO

from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.base.clock import Clock
from pycollective.checkpoint import typed_file
from pycollective.checkpoint.typed_file import NO_LIMIT
from pycollective.checkpoint.whole_file import replacing
from pycollective.objects import object_message, objects
from pycollective.objects.object_call import Call
from pycollective.objects.object_codec import Bytes
from pycollective.objects.object_message import Kind
from pycollective.runtime.lifetime import check_timeout
from pycollective.training import rank0

__all__ = ["load", "save"]


@advised
def save(
    state: object,
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    write: Callable[[Any, BinaryIO], object] | None = None,
    rank: int = 0,
    group: Group | None = None,
    timeout: float | None = None,
) -> None:
    """Save one rank's state to a file, and return on all ranks once it is on the disk.

    All ranks of the group must call it. Even if the process is killed or the machine fails, a
    complete file exists, either the old or the new one: the new file is written under a temporary
    name in the same folder, flushed to the disk and renamed. The state must not change during the
    call. Without a world, this process saves its own state.

    Parameters:
        state: the state to save; only that of `rank` is used. The default format supports what
            docs/objects.md lists, and these types of frameworks: OrderedDict (loaded as dict),
            parameters and tensors on any device (loaded on the CPU, without gradients), JAX
            arrays (loaded as NumPy arrays).
        path: the file, in a folder that exists.
        write: a function write(state, file) that writes the state in another format, like
            torch.save.
        rank: the rank that saves, as numbered in the group.
        group: the ranks that take part; default the world.
        timeout: seconds that the other ranks wait for `rank`; default that of the group.

    Raises:
        OSError: on every rank: e.g. the disk is full or the folder is missing. The old file is
            unchanged.
        InvalidArgument: on every rank: something in the state cannot be written; the message
            has its position in the state.
        PeerFailure: the rank that saves has died.

    An exception of `write` is raised on every rank; on the other ranks its cause is a RemoteError.

    Example:
        >>> import tempfile
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> folder = tempfile.TemporaryDirectory()
        >>> pc.checkpoint.save({"epoch": 3}, f"{folder.name}/last.ckpt")
        >>> pc.checkpoint.load(f"{folder.name}/last.ckpt")
        {'epoch': 3}
        >>> folder.cleanup(); pc.shutdown()
    """

    def checkpoint_save() -> None:
        with replacing(os.fsdecode(path)) as file:
            (write or typed_file.write)(state, file)

    rank0.single_process(rank=rank, share=False, group=group, timeout=timeout)(checkpoint_save)()


@advised
def load(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    read: Callable[[BinaryIO], Any] | None = None,
    root: int = 0,
    group: Group | None = None,
    timeout: float | None = None,
) -> Any:  # noqa: ANN401
    """Load a file of save(): one rank reads the file and sends the state to the other ranks.

    All ranks of the group must call it. A file that save() did not write, or that is incomplete, is
    refused. Without a world, this process reads the file. The arrays and tensors of the state are
    writable views of one block of memory.

    Parameters:
        path: the file; only the root's path is used.
        read: a function read(file) for another format, like functools.partial(torch.load,
            weights_only=True, map_location="cpu"). If there are other ranks, its result is sent
            in the default format of save(). The result must hold only what that format
            supports, and every rank, including the root, gets a decoded copy.
        root: the rank that reads.
        group: the ranks that take part; default the world.
        timeout: seconds; default that of the group.

    Raises:
        OSError: on every rank: FileNotFoundError if there is no such file.
        InvalidArgument: on every rank: the file is not a checkpoint, or is damaged.
        Unsupported: the state has an array of a library that is not installed here.
        PeerFailure: the root has died.

    An exception of `read` is raised on every rank; on the other ranks its cause is a RemoteError.

    Example:
        >>> import pycollective as pc
        >>> try:
        ...     state = pc.checkpoint.load("/no/such/file")
        ... except FileNotFoundError:  # on every rank
        ...     state = {"epoch": 0}
    """
    check_timeout(timeout)
    clock = Clock(timeout)
    members = rank0.members_of(group)
    is_alone = members is None or members.size == 1
    bodies: list[Bytes] = []

    def checkpoint_load() -> object:
        with open(os.fsdecode(path), "rb") as file:
            if read is None:
                bodies.append(typed_file.read(file))
            elif is_alone:
                return read(file)
            else:
                refusal = "checkpoint.load: what read= returns cannot be sent to the other ranks"
                bodies.append(typed_file.encoded(read(file), refusal))
        # an error is raised inside this function, and therefore on all ranks
        return typed_file.decoded(bodies[0])

    state = rank0.single_process(rank=root, share=False, group=group, timeout=timeout)(checkpoint_load)()
    if members is None or is_alone:
        return state
    if members.rank != root:
        return objects.broadcast_object(members, None, root, max_nbytes=NO_LIMIT, timeout=clock.left_s())
    _broadcast(members, bodies[0], root, clock)
    return state


def _broadcast(group: Group, body: Bytes, root: int, clock: Clock) -> None:
    """Broadcast an object that is already encoded, with the protocol of broadcast_object()."""
    call = Call("checkpoint.load", group, False, NO_LIMIT, clock.left_s())
    call.send(
        object_message.with_mark(Kind.TYPED, body),
        lambda piece: group.broadcast(piece, root, timeout=call.clock.left_s()),
    )
