"""save and load: what one rank does with the file, and what the others hear of it."""

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
    """Save one rank's state to a file, and let all ranks know that it is on the disk.

    All ranks of the group must call it. Whenever the process is killed or the machine fails, there is the old file or
    the new one, whole: it is written beside its place, brought to the disk and renamed. The state must not change
    meanwhile. Without a world it just saves.

    Parameters:
        state: what to save; only that of `rank` counts. By default what docs/objects.md lists, and what frameworks
            have: OrderedDict (comes back as dict), parameters and tensors on any device (come back on the CPU, without
            gradients), JAX arrays (come back as NumPy's).
        path: the file, in a folder that exists.
        write: a function of state and file that writes it in another format, like torch.save.
        rank: who saves, counted in the group.
        group: whose ranks take part; default the world.
        timeout: seconds that the others wait for it; default that of the group.

    Raises:
        OSError: on every rank: the disk is full, the folder is missing. The old file is as it was.
        InvalidArgument: on every rank: something in the state cannot be written; the message says where it stands.
        PeerFailure: the rank that saves has died.

    What `write` raises is raised on every rank, too, on the others with a RemoteError as its cause.

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
    """Load what save() has saved: one rank reads the file, the others get the state from it.

    All ranks of the group must call it. A file that save() did not write, or not whole, is refused. Without a world it
    just loads. The arrays and tensors of the state are writable views of one block of memory.

    Parameters:
        path: the file; only the root's counts.
        read: a function of a file that reads another format, like functools.partial(torch.load, weights_only=True,
            map_location="cpu"). If there are other ranks, what it returns goes the way of save's default format:
            it must hold what that takes, and comes back as from there, on the root too.
        root: who reads.
        group: whose ranks take part; default the world.
        timeout: seconds; default that of the group.

    Raises:
        OSError: on every rank: FileNotFoundError if there is no such file.
        InvalidArgument: on every rank: the file is no checkpoint, or is damaged.
        Unsupported: it has an array of a library that is not installed here.
        PeerFailure: the root has died.

    What `read` raises is raised on every rank, too, on the others with a RemoteError as its cause.

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
        return typed_file.decoded(bodies[0])  # here, so that what is wrong with it is raised on all

    state = rank0.single_process(rank=root, share=False, group=group, timeout=timeout)(checkpoint_load)()
    if members is None or is_alone:
        return state
    if members.rank != root:
        return objects.broadcast_object(members, None, root, max_nbytes=NO_LIMIT, timeout=clock.left_s())
    _broadcast(members, bodies[0], root, clock)
    return state


def _broadcast(group: Group, body: Bytes, root: int, clock: Clock) -> None:
    """As broadcast_object() does, but of what is encoded already."""
    call = Call("checkpoint.load", group, False, NO_LIMIT, clock.left_s())
    call.send(
        object_message.with_mark(Kind.TYPED, body),
        lambda piece: group.broadcast(piece, root, timeout=call.clock.left_s()),
    )
