"""Ranks started by `pycollective run` or `pycollective.testing.run`."""

from __future__ import annotations

from collections.abc import Mapping

from pycollective.bootstrap.detect.variables import integer, rank_of, require
from pycollective.bootstrap.key import job_of_run, read_key
from pycollective.bootstrap.placement import Placement
from pycollective.errors import InvalidArgument

PREFIX = "PYCOLLECTIVE_"
NAMES = tuple(
    PREFIX + name for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "STORE", "KEY_FD")
)


def detect(env: Mapping[str, str]) -> Placement | None:
    if not any(env.get(name) for name in NAMES):
        return None
    require(env, NAMES, "pycollective run")
    rank, size = rank_of(env, "PYCOLLECTIVE_RANK", "PYCOLLECTIVE_WORLD_SIZE")
    local_rank, local_size = rank_of(env, "PYCOLLECTIVE_LOCAL_RANK", "PYCOLLECTIVE_LOCAL_WORLD_SIZE")
    key = read_key(integer(env, "PYCOLLECTIVE_KEY_FD"))
    if key is None:
        raise InvalidArgument(
            f"no job key can be read at PYCOLLECTIVE_KEY_FD={env['PYCOLLECTIVE_KEY_FD']}. A process that a rank starts "
            f"is not a rank itself: start it without the PYCOLLECTIVE_* variables. A wrapper that starts a rank must "
            f"keep that descriptor open (subprocess: pass_fds=...)"
        )
    return Placement(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        launcher="pycollective run",
        one_host=True,
        store_addresses=(env["PYCOLLECTIVE_STORE"],),
        job=job_of_run(key),
        key=key,
        variables=NAMES,
    )
