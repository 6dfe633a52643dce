"""The device and rank of a program, and the lines that it prints. Every program imports it.

PROGRAM_DEVICE is cpu or cuda. On a machine with one GPU the ranks share it, and calls go from array
to array. With PROGRAM_WAY=nccl calls go by NCCL. NCCL refuses ranks of one host that share a GPU,
so each rank gets an NCCL_HOSTID of its own, and NCCL treats the ranks as those of several hosts.
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
