"""Which rank is this process? A table of environments and what each must give."""

from __future__ import annotations

import hashlib
import os
import socket

import pytest

from pycollective.errors import InvalidArgument, Unsupported
from pycollective.launch.detect import detect
from pycollective.launch.detect.torch_variables import job_text, ports
from pycollective.launch.key import job_id, key_file, new_key, read_key

TORCH = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in TORCH.items() if name not in names}


def test_no_launcher_is_a_world_of_one() -> None:
    place = detect({"PATH": "/bin", "MASTER_ADDR": "left over"})
    assert (place.rank, place.size, place.local_rank, place.local_size) == (0, 1, 0, 1)
    assert (place.store_addresses, place.host_store, place.launcher) == ([], None, "single")


def test_the_torch_variables_give_a_place_and_a_store() -> None:
    place = detect({**TORCH, "LOCAL_WORLD_SIZE": "2"})
    assert (place.rank, place.size, place.local_rank, place.local_size) == (1, 4, 1, 2)
    assert place.host_store is None
    assert len(set(place.store_addresses)) == 16
    assert place.address == "127.0.0.1"
    assert detect(TORCH).local_size == 0  # not told


def test_rank_0_hosts_the_store_where_the_others_look_for_it() -> None:
    root = detect({**TORCH, "RANK": "0", "LOCAL_RANK": "0"})
    assert root.host_store == root.store_addresses == detect(TORCH).store_addresses
    assert root.job == detect(TORCH).job


def test_master_port_is_never_bound_nor_are_ports_that_the_kernel_hands_out() -> None:
    for master_port in range(20000, 32768):  # all, so that some would be hit by chance
        environment = {**TORCH, "MASTER_PORT": str(master_port)}
        found = ports(environment, job_text(environment, 4))
        assert master_port not in found
        assert all(20000 <= port < 32768 for port in found)


@pytest.mark.parametrize(
    "change",
    [
        {"MASTER_PORT": "29501"},
        {"MASTER_ADDR": "127.0.0.2"},
        {"WORLD_SIZE": "5"},
        {"TORCHELASTIC_RUN_ID": "a"},
        {"TORCHELASTIC_RESTART_COUNT": "1"},
    ],
)
def test_different_jobs_have_different_ids_and_ports(change: dict[str, str]) -> None:
    here, there = detect(TORCH), detect({**TORCH, **change})
    assert here.job != there.job
    assert [a.rpartition(":")[2] for a in here.store_addresses] != [
        a.rpartition(":")[2] for a in there.store_addresses
    ]


def test_the_port_can_be_chosen() -> None:
    assert detect({**TORCH, "PYCOLLECTIVE_PORT": "4711"}).store_addresses == ["127.0.0.1:4711"]


def test_names_become_numeric_addresses() -> None:
    assert detect({**TORCH, "MASTER_ADDR": "localhost"}).store_addresses[0].startswith("127.0.0.1:")
    assert detect({**TORCH, "MASTER_ADDR": "::1", "RANK": "0"}).store_addresses[0].startswith("[::1]:")
    with pytest.raises(InvalidArgument, match=r"MASTER_ADDR=no-such-host\.invalid does not resolve"):
        detect({**TORCH, "MASTER_ADDR": "no-such-host.invalid"})


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (without("WORLD_SIZE"), "WORLD_SIZE missing"),
        (without("RANK"), "RANK missing"),
        (without("MASTER_ADDR"), "MASTER_ADDR missing"),
        (without("MASTER_PORT", "MASTER_ADDR"), "MASTER_ADDR MASTER_PORT missing"),
        (without("LOCAL_RANK"), "count machines and not processes.*LOCAL_RANK=0"),
        ({"LOCAL_RANK": "1"}, "RANK WORLD_SIZE missing"),
        ({**TORCH, "RANK": ""}, "RANK missing"),
        ({**TORCH, "RANK": "4"}, "RANK=4 WORLD_SIZE=4"),
        ({**TORCH, "RANK": "-1"}, "RANK=-1"),
        ({**TORCH, "WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
        ({**TORCH, "RANK": "one"}, "RANK='one'"),
        ({**TORCH, "LOCAL_RANK": "4"}, "LOCAL_RANK=4"),
        ({**TORCH, "LOCAL_WORLD_SIZE": "1"}, "LOCAL_RANK=1 LOCAL_WORLD_SIZE=1"),
        ({**TORCH, "MASTER_PORT": "http"}, "MASTER_PORT='http'"),
        ({**TORCH, "PYCOLLECTIVE_PORT": "65536"}, "PYCOLLECTIVE_PORT=65536"),
        (
            {"PYCOLLECTIVE_RANK": "0", "PYCOLLECTIVE_WORLD_SIZE": "2"},
            "PYCOLLECTIVE_STORE PYCOLLECTIVE_KEY_FD missing",
        ),
    ],
)
def test_an_environment_that_is_incomplete_or_wrong_is_refused(
    environment: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        detect(environment)


def test_one_machine_of_one_is_a_world_of_one() -> None:
    assert detect({"RANK": "0", "WORLD_SIZE": "1"}).size == 1


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
            "mpirun ... bash -c 'MASTER_ADDR=<host of rank 0> MASTER_PORT=29500 "
            "RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE "
            "LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK exec python script.py'",
        ),
        ({"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALRANKID": "1"}, "LOCAL_RANK=$MPI_LOCALRANKID"),
        ({"PMI_SIZE": "2", "PMI_RANK": "1", "SLURM_LOCALID": "1"}, "LOCAL_RANK=$SLURM_LOCALID"),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}, "RANK=$SLURM_PROCID"),
        ({"HOROVOD_SIZE": "2", "HOROVOD_RANK": "1"}, "RANK=$HOROVOD_RANK"),
    ],
)
def test_a_launcher_that_cannot_be_joined_is_refused_with_what_works(
    environment: dict[str, str], line: str
) -> None:
    with pytest.raises(Unsupported) as info:
        detect(environment)
    assert line in str(info.value)
    joined = {**environment, **TORCH}  # after that advice
    assert detect(joined).size == 4


def test_one_task_of_a_known_launcher_and_an_interactive_allocation_are_worlds_of_one() -> None:
    assert detect({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}).size == 1
    assert detect({"SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}).size == 1  # salloc without srun


def test_our_own_launcher_wins_over_what_it_was_started_in() -> None:
    key = new_key()
    fd = key_file(key)
    try:
        place = detect({**ours(fd), **TORCH, "OMPI_COMM_WORLD_SIZE": "9", "OMPI_COMM_WORLD_RANK": "0"})
        assert (place.rank, place.size, place.launcher) == (2, 3, "pycollective run")
        assert place.store_addresses == ["127.0.0.1:4711"]
        assert place.host_store is None
        assert place.job == hashlib.blake2b(key, digest_size=16, person=b"pycollective-job").digest()
        assert detect(ours(fd)) == detect(ours(fd))  # the key can be read again: init() after shutdown()
    finally:
        os.close(fd)


def ours(fd: int) -> dict[str, str]:
    names = {
        "RANK": 2,
        "WORLD_SIZE": 3,
        "LOCAL_RANK": 2,
        "LOCAL_WORLD_SIZE": 3,
        "KEY_FD": fd,
        "STORE": "127.0.0.1:4711",
    }
    return {f"PYCOLLECTIVE_{name}": str(value) for name, value in names.items()}


def test_what_a_rank_starts_is_not_a_rank() -> None:
    fd = key_file(new_key())
    os.close(fd)
    with pytest.raises(InvalidArgument, match="no job key can be read"):
        detect(ours(fd))
    with socket.socket() as other, pytest.raises(InvalidArgument, match="no job key can be read"):
        detect(ours(other.fileno()))


def test_a_key_is_32_bytes_sealed_and_not_inherited_once_read() -> None:
    key = new_key()
    fd = key_file(key)
    try:
        os.set_inheritable(fd, True)
        assert read_key(fd) == key
        assert len(key) == 32
        assert not os.get_inheritable(fd)
        with pytest.raises(PermissionError):
            os.write(fd, b"x")
    finally:
        os.close(fd)
    assert job_id(key) != job_id(new_key())
