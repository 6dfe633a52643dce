"""Which transports and devices this process can use, and why the rest are unavailable."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

from pycollective import _core
from pycollective.errors import Unsupported

__all__ = ["Availability", "available"]


@dataclass(frozen=True)
class Availability:
    """The result of available(). Its truth value is `usable`, and `str()` returns a sentence.

    Example:
        >>> import pycollective as pc
        >>> answer = pc.Availability("nccl", False, "no libnccl.so.2 was found")
        >>> bool(answer), str(answer)
        (False, 'nccl is not available: no libnccl.so.2 was found')
    """

    name: str
    usable: bool
    # If `usable`: what was found, where, and its version. Otherwise: what was searched for, what
    # was found instead, and the remedy.
    found: str

    def __bool__(self) -> bool:
        return self.usable

    def __str__(self) -> str:
        return f"{self.name} is {'' if self.usable else 'not '}available: {self.found}"


@overload
def available() -> dict[str, Availability]: ...
@overload
def available(name: str) -> Availability: ...
def available(name: str | None = None) -> Availability | dict[str, Availability]:
    """Return whether this process could use `name`, and what was found or is missing.

    This is a local check: no other rank takes part.

    Parameters:
        name: "tcp" or "shm": a transport between ranks; "cuda": the driver and at least one
            GPU; "nccl": NCCL's library in addition to "cuda". Default: all of them.

    Returns:
        An Availability: `if pc.available("nccl"): ...`, `print(pc.available("nccl"))`. Without
        a name, a dict of all of them by name.

    For "cuda" and "nccl", and therefore also without a name, the driver is opened and started. This
    takes up to a second and makes GPUs unusable in processes that are forked afterwards;
    pc.device() does not have this effect. Nothing is opened before this call.

    Raises:
        Unsupported: there is no such name.

    Example:
        >>> import pycollective as pc
        >>> bool(pc.available("tcp"))
        True
        >>> sorted(pc.available())
        ['cuda', 'nccl', 'shm', 'tcp']
    """
    if name is None:
        return {each: ask() for each, ask in _ASK.items()}
    if (ask := _ASK.get(name)) is None:
        raise Unsupported(f"available({name!r}): the names are tcp, shm, cuda and nccl")
    return ask()


def wheel_folders() -> list[str]:
    """Return the folders in which an NVIDIA wheel has NCCL.

    The wheel is a namespace package, so finding it runs no code.
    """
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _network() -> Availability:
    return Availability("tcp", True, "the network of this host")


def _shared_memory() -> Availability:
    try:
        os.close(os.memfd_create("pycollective"))
    except OSError as error:
        return Availability("shm", False, f"memfd_create: {error.strerror}")
    return Availability("shm", True, "memory that ranks of one host hand to each other (memfd)")


def _cuda() -> Availability:
    driver = _core._driver_facts()
    if "why_not" in driver:
        return Availability("cuda", False, driver["why_not"])
    names = ", ".join(device["name"] for device in driver["devices"])
    return Availability("cuda", True, f"CUDA {driver['version']} from {driver['path']}, with {names}")


def _nccl() -> Availability:
    library, cuda = _core._nccl_facts(wheel_folders()), _cuda()
    if "why_not" in library:
        return Availability("nccl", False, library["why_not"])
    found = f"NCCL {library['version']} from {library['path']} ({library['how']})"
    return Availability("nccl", cuda.usable, found if cuda else f"there is {found}, but {cuda}")


_ASK: dict[str, Callable[[], Availability]] = {
    "tcp": _network,
    "shm": _shared_memory,
    "cuda": _cuda,
    "nccl": _nccl,
}
