"""The programs, and what each needs. A file may have several rows, one for each start of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).with_name("programs")
KILLED = 137  # as `pycollective run` ends when a rank has been killed by kill -9
TORCHRUN, OURS = "torchrun", "pycollective run"


@dataclass(frozen=True)
class Program:
    """One start of a program.

    `by_nccl`: the ranks share a GPU and still call NCCL. `alone`: after all others, with nothing
    beside it. `ends`: the exit code that is right. `deadline_s`: of the whole program, from the
    start of its launcher to its end.
    """

    name: str
    ranks: int = 2
    needs: tuple[str, ...] = ("torch",)
    file: str = ""  # where it is not the name's
    launcher: str = OURS
    env: Mapping[str, str] = field(default_factory=dict)
    needs_gpu: bool = False
    by_nccl: bool = False
    alone: bool = False
    ends: int = 0
    deadline_s: float = 60.0
    folder: Path = FOLDER

    @property
    def script(self) -> Path:
        return self.folder / f"{self.file or self.name}.py"

    def __str__(self) -> str:
        return self.name


def by_nccl(
    file: str,
    ranks: int = 2,
    *,
    ends: int = 0,
    alone: bool = False,
    env: Mapping[str, str] | None = None,
) -> Program:
    return Program(
        f"{file}_by_nccl",
        ranks,
        file=file,
        env=env or {},
        needs_gpu=True,
        by_nccl=True,
        ends=ends,
        alone=alone,
    )


TRAINER = {"PYCOLLECTIVE_REPLACES": "gloo,nccl", "HF_HUB_OFFLINE": "1"}
PROGRAMS = (
    # Those that take longest are first.
    Program(
        "trainer",
        needs=("torch", "transformers", "accelerate"),
        launcher=TORCHRUN,
        env=TRAINER,
        deadline_s=100,
    ),
    Program("checkpoint_round"),
    Program("fsdp2"),
    Program("tensor_parallel"),
    Program("pipeline_1f1b"),
    Program("ddp", launcher=TORCHRUN),
    by_nccl("ddp"),
    Program("gloo_beside_ours"),
    by_nccl("gloo_beside_ours"),
    Program("subgroups", ranks=3),
    Program("data_parallel"),
    by_nccl("data_parallel"),
    Program("distributed_optimizer"),
    Program("torch_names"),
    by_nccl("torch_names"),
    Program("delayed_producer"),
    by_nccl("delayed_producer"),
    Program("jax_arrays", needs=("jax",), env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    Program("cupy_arrays", needs=("cupy",), needs_gpu=True),
    Program("mixed_devices"),
    by_nccl("mixed_devices"),
    Program("hidden_gpu"),
    Program("adjacent_in_memory"),
    Program("objects_with_tensors"),
    Program("dying_rank", ends=KILLED),
    by_nccl("dying_rank", ends=KILLED),
    Program("different_types"),
    by_nccl("different_types"),
    Program("wrong_number"),
    by_nccl("wrong_number", env={"PYCOLLECTIVE_STREAM_CHECK": "on"}),
    by_nccl("graph_capture"),
    # These fill the GPU, or measure time.
    Program("full_memory", needs_gpu=True, alone=True),
    by_nccl("full_memory", alone=True),
    Program("host_time_1_rank", ranks=1, file="host_time", alone=True),
    Program("host_time_2_ranks", file="host_time", by_nccl=True, alone=True),
)
