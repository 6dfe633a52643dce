"""The store of torch.distributed, if the program has already initialised it.

Never imports torch.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

from pycollective.bootstrap.kvs.kvs import Kvs
from pycollective.errors import CollectiveError, CollectiveTimeout, PeerFailure

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.1


class DefaultStore:
    """Keys exist as long as the store of torch.distributed, which may outlive the ranks."""

    lasting = True

    def __init__(self, store: Any, space: str) -> None:  # noqa: ANN401
        self.name = "the store of torch.distributed"
        self.space = space  # distinguishes this job's keys from those of other jobs
        self.store = store

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        try:
            self.store.set(f"{key}/{self.space}", text)
        except CollectiveError:  # the next clause must not handle it, although it is a RuntimeError
            raise
        except RuntimeError as error:
            raise self.broken(error) from error

    def read(self, key: str, *, timeout_s: float) -> str:
        # read() polls, because the store's own wait() ignores Ctrl-C.
        deadline, pause = time.monotonic() + timeout_s, FIRST_PAUSE_S
        try:
            while not self.store.check([f"{key}/{self.space}"]):
                if time.monotonic() > deadline:
                    raise CollectiveTimeout(
                        f"rank 0 has not published its address in {self.name} within {timeout_s:.3g} s: it ended, or "
                        "never calls pycollective.init()"
                    )
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
            return bytes(self.store.get(f"{key}/{self.space}")).decode(errors="replace")
        except CollectiveError:  # the next clause must not handle it, although it is a RuntimeError
            raise
        except RuntimeError as error:
            raise self.broken(error) from error

    def withdraw(self, key: str) -> None:
        # Some of torch's stores cannot delete keys, and some are already closed. The card then
        # exists until the store is destroyed.
        with contextlib.suppress(RuntimeError, NotImplementedError):
            self.store.delete_key(f"{key}/{self.space}")

    def broken(self, error: Exception) -> CollectiveError:
        return PeerFailure(f"{self.name} failed: {error}", cause=str(error))


def initialised_store(rank: int, size: int, space: str) -> Kvs | None:
    """Return the default store of torch.distributed, or None.

    It is used only if torch.distributed is initialised with the same rank and size.
    """
    module: Any = sys.modules.get("torch.distributed")
    try:
        if module is None or not module.is_available() or not module.is_initialized():
            return None
        if (module.get_rank(), module.get_world_size()) != (rank, size):
            return None
        return DefaultStore(module.distributed_c10d._get_default_store(), space)
    # Another version of torch may lack these functions. The other detectors are then tried.
    except (AttributeError, RuntimeError, ValueError):
        return None
