"""What is required of GPUs, and which checks judge each requirement: benchmarks/gpu.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .check import FAILED, FIGURE, PASSED, SKIPPED, Check

NOT_RUN = "not run"
PROGRAMS = [
    "checkpoint_round",
    "cupy_arrays",
    "data_parallel",
    "ddp",
    "delayed_producer",
    "different_types",
    "distributed_optimizer",
    "dying_rank",
    "fsdp2",
    "gloo_beside_ours",
    "graph_capture_by_nccl",
    "hidden_gpu",
    "jax_arrays",
    "mixed_devices",
    "adjacent_in_memory",
    "objects_with_tensors",
    "pipeline_1f1b",
    "subgroups",
    "tensor_parallel",
    "torch_names",
    "trainer",
]


@dataclass(frozen=True)
class Requirement:
    """`checks`: prefixes of the names of its checks, with their part.

    Each needs one check that passed.
    """

    name: str
    wanted: str
    checks: tuple[str, ...]

    def state(self, all_checks: Sequence[Check]) -> str:
        mine = [each for each in all_checks if f"{each.part}: {each.name}".startswith(self.checks)]
        failed = [each for each in mine if each.outcome == FAILED]
        skipped = [each for each in mine if each.outcome == SKIPPED]
        if failed:
            return f"failed: {failed[0].name}: {failed[0].said}"
        if not mine or len(skipped) == len(mine):
            return NOT_RUN + (f": {skipped[0].said.removeprefix('not run: ')}" if skipped else "")
        passed = [f"{each.part}: {each.name}" for each in mine if each.outcome == PASSED]
        whole = not skipped and all(any(each.startswith(wanted) for each in passed) for wanted in self.checks)
        said = "; ".join(each.said for each in mine if each.outcome in (PASSED, FIGURE) and each.said)
        return ("passed" if whole else "partly") + (f": {said}" if said else "")


REQUIREMENTS = (
    Requirement(
        "kernels, every type and operation",
        "the bits of the CPU's, which a plain calculation in double proves",
        ("C++: KernelsOnGpu.",),
    ),
    Requirement(
        "compute-sanitizer memcheck of the kernels' tests",
        "no error",
        ("compute-sanitizer: ",),
    ),
    Requirement(
        "NCCL with one rank", "right, in the order of streams, ended by an abort", ("C++: NcclOnGpu.",)
    ),
    Requirement(
        "allreduce of 8 B, 1 rank by NCCL",
        "median at most 1 us over NCCL's own call, in place 2 us, in 4 of 5 runs",
        tuple(
            f"benchmark: 8 B, 1 rank beside NCCL: {each}" for each in ("results", "out of place", "in place")
        ),
    ),
    Requirement("every collective, 2 ranks on one GPU", "right", ("benchmark: 2 ranks on one GPU",)),
    Requirement("every collective, 4 ranks on one GPU", "right", ("benchmark: 4 ranks on one GPU",)),
    Requirement("every collective, 8 ranks on one GPU", "right", ("benchmark: 8 ranks on one GPU",)),
    Requirement(
        "allreduce of 256 MiB, 2 ranks on one GPU",
        "at least 60 % of what the driver's copy on that GPU allows",
        ("benchmark: 256 MiB on one GPU, 2 ranks: busbw", "benchmark: 256 MiB on one GPU, 2 ranks: results"),
    ),
    Requirement(
        "NCCL with two ranks that are processes, by NCCL_HOSTID",
        "right; ranks that differ are found",
        ("Python: two ranks by the host id way", "benchmark: 2 ranks by NCCL on one GPU"),
    ),
    Requirement(
        "streams with a delayed producer",
        "no race",
        (
            "Python: torch tensors are behind",
            "Python: torch work orders",
            "Python: torch memory lives",
            "Python: cupy arrays are behind",
            "Python: three ranks from array to array",
            "Python: messages by the host id way",
            "Python: messages from array to array",
            "C++: NcclOnGpu.a_call_comes_after",
        ),
    ),
    Requirement(
        "CUDA graphs",
        "replays are right",
        ("Python: torch graphs replay", "benchmark: CUDA graph, 1 rank: results"),
    ),
    Requirement(
        "kill -9 of a rank",
        "seen in less than 0.1 s",
        ("Python: a killed rank is noticed by the other", "Python: a killed rank is noticed by a peer"),
    ),
    Requirement(
        "programs of users",
        "what one process computes, or refused on every rank",
        tuple(f"programs: {name}" for name in PROGRAMS),
    ),
    Requirement(
        "no silent wrong number (`PYCOLLECTIVE_STREAM_CHECK=on`)",
        "an error, or NaN and then an error",
        ("programs: wrong_number",),
    ),
    Requirement(
        "a full GPU", "an error that names its memory; the group goes on", ("programs: full_memory",)
    ),
    Requirement(
        "host time of torch's calls beside its nccl, 1 and 2 ranks",
        "p50 at most 1.15 times: 5 calls, 8 B and 1 MiB",
        ("programs: host_time_1_rank", "programs: host_time_2_ranks"),
    ),
)


def markdown(checks: Sequence[Check]) -> str:
    rows = [
        f"| {requirement.name} | {requirement.wanted} | {requirement.state(checks).replace('|', '/')} |"
        for requirement in REQUIREMENTS
    ]
    return "\n".join(["| | Requirement | |", "|---|---|---|", *rows, ""])
