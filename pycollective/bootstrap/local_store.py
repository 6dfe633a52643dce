"""Opens the store that the ranks of one job use to connect."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pycollective.bootstrap.addresses import check_loopback
from pycollective.bootstrap.key import job_id, job_of_run
from pycollective.bootstrap.key_sources import security

if TYPE_CHECKING:
    from pycollective import _core


def open_store(addresses: Sequence[str], *, key: bytes, job: bytes, key_source: str) -> _core.StoreServer:
    """Listen at all of `addresses`, each "ip:port". Port 0 means any free port."""
    from pycollective import _core

    encrypts = "encrypt" in security(os.environ)
    return _core.StoreServer(list(addresses), key=key, job=job, key_source=key_source, encrypts=encrypts)


def open_store_of_run(key: bytes) -> _core.StoreServer:
    """Open a store for ranks on this host that inherit `key`, on a free port of loopback."""
    check_loopback(["127.0.0.1"])
    job = job_id(job_of_run(key).encode())
    return open_store(["127.0.0.1:0"], key=key, job=job, key_source="made by the launcher")
