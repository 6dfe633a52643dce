"""The store of torch.distributed, where the program has initialised that already. torch is never imported for it."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

from pycollective.bootstrap.kvs.kvs import Kvs
from pycollective.errors import CollectiveError, CollectiveTimeout, PeerFailure

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.1


class DefaultStore:
    """Keys live as long as that store, which may be longer than the ranks."""

    lasting = True

    def __init__(self, store: Any, space: str) -> None:  # noqa: ANN401
        self.name = "the store of torch.distributed"
        self.space = space  # what tells this job's keys from others'
        self.store = store

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        try:
            self.store.set(f"{key}/{self.space}", text)
        except CollectiveError:  # a RuntimeError, too
            raise
        except RuntimeError as error:
            raise self.broken(error) from error

    def read(self, key: str, *, timeout_s: float) -> str:
        # Asked again and again, for its own wait() hears no Ctrl-C.
        deadline, pause = time.monotonic() + timeout_s, FIRST_PAUSE_S
        try:
            while not self.store.check([f"{key}/{self.space}"]):
                if time.monotonic() > deadline:
                    raise CollectiveTimeout(
                        f"rank 0 has not told {self.name} in {timeout_s:.3g} s where its store is: it ended, or never "
                        f"calls pycollective.init()"
                    )
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
            return bytes(self.store.get(f"{key}/{self.space}")).decode(errors="replace")
        except CollectiveError:  # a RuntimeError, too
            raise
        except RuntimeError as error:
            raise self.broken(error) from error

    def withdraw(self, key: str) -> None:
        # Some of torch's stores cannot delete, and by now some are gone: the card ends with the store.
        with contextlib.suppress(RuntimeError, NotImplementedError):
            self.store.delete_key(f"{key}/{self.space}")

    def broken(self, error: Exception) -> CollectiveError:
        return PeerFailure(f"{self.name} failed: {error}", cause=str(error))


def initialised_store(rank: int, size: int, space: str) -> Kvs | None:
    """The default store, if torch.distributed has been initialised here with the same ranks."""
    module: Any = sys.modules.get("torch.distributed")
    try:
        if module is None or not module.is_available() or not module.is_initialized():
            return None
        if (module.get_rank(), module.get_world_size()) != (rank, size):
            return None
        return DefaultStore(module.distributed_c10d._get_default_store(), space)
    except (AttributeError, RuntimeError, ValueError):  # another version; the other ways are still there
        return None
