"""Where a program runs, and what it prints at its end. Every program imports it first.

PROGRAM_DEVICE is cpu or cuda. Ranks of a machine with one GPU share it: then calls go from array to
array. With PROGRAM_WAY=nccl they go by NCCL, which takes ranks for those of several hosts if each
has another NCCL_HOSTID.
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
    """Prints on rank 0, once for all ranks. A program without a rank 0 prints the line itself."""
    if RANK == 0:
        print(f"proved: {what}", flush=True)


def cannot_run(why: str) -> NoReturn:
    print(f"cannot be run here: {why}", flush=True)
    sys.exit(CANNOT_RUN)
