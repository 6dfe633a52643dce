"""Where a program runs, and what it says at its end. The first thing that each program imports.

PROGRAM_DEVICE is cpu or cuda. Ranks of a machine with one GPU share it: then calls go from array to array. With
PROGRAM_WAY=nccl they go by NCCL, which takes ranks for those of several hosts where each has another NCCL_HOSTID.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

DEVICE = os.environ.get("PROGRAM_DEVICE", "cpu")
BY_NCCL = os.environ.get("PROGRAM_WAY") == "nccl"
RANK = int(os.environ.get("RANK", "0"))
CANNOT_RUN = 77

if BY_NCCL:
    os.environ["NCCL_HOSTID"] = f"host {RANK}"
    os.environ |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_MAX_CTAS": "4", "NCCL_RAS_ENABLE": "0"}


def proved(what: str) -> None:
    """Rank 0 says it for all, in one line; where rank 0 is not there to say it, another rank prints it itself."""
    if RANK == 0:
        print(f"proved: {what}", flush=True)


def cannot_run(why: str) -> NoReturn:
    print(f"cannot be run here: {why}", flush=True)
    sys.exit(CANNOT_RUN)
