"""Lets programs that name another backend of torch.distributed, such as "gloo", use pycollective.

Trainers recognize backends by name: some refuse unknown ones, and some then train without DDP. So
the name stays the same, and get_backend() returns "gloo", but the process group is pycollective's.
For this, the torch function that makes all process groups is wrapped.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from pycollective.errors import InvalidArgument, Unsupported

__all__ = ["replace", "replace_named"]

REPLACEABLE = ("gloo", "nccl")
OURS = "pycollective"
VARIABLE = "PYCOLLECTIVE_REPLACES"

_replaced: frozenset[str] = frozenset()
_has_said = False


def replace(*backends: str) -> None:
    """Replaces other backends of torch.distributed; programs that name them stay unchanged.

    Process groups that are made from now on with one of these names are pycollective's.
    torch.distributed.get_backend() still returns the name. Rank 0 reports the replacement once on
    standard error. PYCOLLECTIVE_REPLACES=gloo has the same effect without any change to the
    program. A group with several backends, such as "cpu:gloo,cuda:nccl", is pycollective's only if
    all of them are replaced, since a process group of pycollective serves all devices. Otherwise
    there is a warning.

    Parameters:
        backends: "gloo", "nccl" or both; they supersede those of an earlier call. Without any,
            no backend is replaced from now on.

    Raises:
        InvalidArgument: a name is not one of these backends.
        Unsupported: this version of torch makes its process groups in another way.

    Example:
        >>> import torch.distributed as dist
        >>> import pycollective as pc
        >>> pc.torch.replace("gloo")
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.get_backend(), type(dist.group.WORLD).__name__
        ('gloo', 'ProcessGroupPycollective')
        >>> dist.destroy_process_group()
        >>> pc.torch.replace()
    """
    global _replaced
    unknown = [each for each in backends if each not in REPLACEABLE]
    if unknown:
        raise InvalidArgument(
            f"replace({unknown[0]!r}): the backends to replace are {', '.join(REPLACEABLE)}"
        )
    _wrap_once()
    _replaced = frozenset(backends)


def replace_named(text: str) -> None:
    """Calls replace() for the value of PYCOLLECTIVE_REPLACES, names separated by commas."""
    names = [name.strip().lower() for name in text.split(",")]
    try:
        replace(*filter(None, names))
    except InvalidArgument as error:
        raise InvalidArgument(f"{VARIABLE}={text}: {error}") from None


@functools.cache
def _wrap_once() -> None:
    original = getattr(c10d, "_new_process_group_helper", None)
    if original is None or "backend" not in inspect.signature(original).parameters:
        raise Unsupported(
            f"torch {torch.__version__} makes its process groups in a way that replace() does not know"
        )
    c10d._new_process_group_helper = _replacing(original)


def _replacing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the function that makes process groups: it then makes ours for replaced backends."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def helper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  torch's
        bound = signature.bind(*args, **kwargs)
        named = bound.arguments["backend"]
        if not _is_ours(named):
            return original(*args, **kwargs)
        bound.arguments["backend"] = dist.Backend(OURS)
        group, store = original(*bound.args, **bound.kwargs)
        if group is not c10d.GroupMember.NON_GROUP_MEMBER:
            group._stands_for = str(named)
            c10d._world.pg_map[group] = (named, c10d._world.pg_map[group][1])
            c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(named))
            ranks = bound.arguments["global_ranks_in_group"]
            if (ranks[group.rank()] if ranks else group.rank()) == 0:
                _say_once(str(named))
        return group, store

    return helper


def _is_ours(named: dist.Backend) -> bool:
    if not _replaced:
        return False
    backends = set(c10d.BackendConfig(named).get_device_backend_map().values())
    if not backends & _replaced:
        return False
    others = sorted(backends - _replaced - {OURS})
    if others:
        warnings.warn(
            f"pycollective stands for {', '.join(sorted(_replaced))}, and this process group has {', '.join(others)} "
            f"as well: it is torch's. A process group of pycollective is for all devices: replace all of its backends, "
            f"as {VARIABLE}={','.join(sorted(backends))} does",
            stacklevel=4,
        )
    return not others


def _say_once(named: str) -> None:
    global _has_said
    if not _has_said:
        names = os.environ.get(VARIABLE, "")
        how = f"{VARIABLE}={names}" if named in names else "pycollective.torch.replace()"
        sys.stderr.write(f"pycollective: torch.distributed's backend {named} is pycollective here ({how})\n")
    _has_said = True
