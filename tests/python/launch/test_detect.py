"""Determines the rank of this process: a table of environments and the result of each."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from pycollective.bootstrap.addresses import is_usable, split
from pycollective.bootstrap.detect import DETECTORS, Placement, detect
from pycollective.bootstrap.detect.derived_ports import ports
from pycollective.bootstrap.detect.paddle import variables_of
from pycollective.bootstrap.interfaces import interfaces
from pycollective.bootstrap.key import job_id, job_of_run, key_file, key_id, new_key, read_key
from pycollective.errors import InvalidArgument, Unsupported

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
    assert (place.store_addresses, place.kvs, place.launcher) == ((), None, "single")


def test_the_torch_variables_give_a_place_and_a_store() -> None:
    place = detect({**TORCH, "LOCAL_WORLD_SIZE": "2"})
    assert (place.rank, place.size, place.local_rank, place.local_size) == (1, 4, 1, 2)
    assert not place.hosts_store
    assert len(set(place.store_addresses)) == 16
    assert all(address.startswith("127.0.0.1:") for address in place.store_addresses)
    assert detect(TORCH).local_size == 0  # not specified


def test_rank_0_hosts_the_store_where_the_others_look_for_it() -> None:
    root = detect({**TORCH, "RANK": "0", "LOCAL_RANK": "0"})
    assert root.hosts_store
    assert root.store_addresses == detect(TORCH).store_addresses
    assert root.job == detect(TORCH).job


def test_master_port_is_never_bound_nor_are_ports_that_the_kernel_hands_out() -> None:
    for master_port in range(20000, 32768):  # all ports, so that some would be hit by chance
        found = ports({}, f"127.0.0.1:{master_port}//4", taken=master_port)
        assert master_port not in found
        assert all(20000 <= port < 32768 for port in found)


@pytest.mark.parametrize(
    "change",
    [
        {"MASTER_PORT": "29501"},
        {"WORLD_SIZE": "5"},
        {"TORCHELASTIC_RUN_ID": "a"},
    ],
)
def test_different_jobs_have_different_ids_and_ports(change: dict[str, str]) -> None:
    here, there = detect(TORCH), detect({**TORCH, **change})
    assert here.job != there.job
    assert [a.rpartition(":")[2] for a in here.store_addresses] != [
        a.rpartition(":")[2] for a in there.store_addresses
    ]


def test_agents_that_count_their_restarts_differently_mean_the_same_job() -> None:
    # The ranks of one agent failed. The other agents restart theirs as well, without counting that.
    once, never = (
        detect({**TORCH, "TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": count})
        for count in ("1", "0")
    )
    assert (once.job, once.store_addresses) == (never.job, never.store_addresses)


@pytest.mark.parametrize("address", ["localhost", "::1", "[::1]", "127.0.0.2"])
def test_the_job_does_not_follow_from_how_its_address_is_spelled(address: str) -> None:
    here, there = detect(TORCH), detect({**TORCH, "MASTER_ADDR": address})
    assert here.job == there.job
    ports = [[store.rpartition(":")[2] for store in place.store_addresses] for place in (here, there)]
    assert ports[0] == ports[1]


def test_paddles_endpoints_may_be_spelled_in_several_ways() -> None:
    def spelled(*hosts: str) -> Placement | None:
        return detect({**PADDLE_4, "PADDLE_TRAINER_ENDPOINTS": ",".join(f"{host}:6170" for host in hosts)})

    assert spelled(*["127.0.0.1"] * 4) == spelled("localhost", "127.0.0.1", "[::1]", "localhost")


def test_a_rank_0_that_calls_itself_localhost_among_several_hosts_is_found_by_the_others() -> None:
    """A master pod of Kubeflow does so. Ranks of its own host find it at loopback."""
    several = {**TORCH, "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    usable = [address for name, address, flags in interfaces() if is_usable((name, address, flags))]
    first = detect({**several, "RANK": "0", "LOCAL_RANK": "0"})
    assert {split(each)[0] for each in first.store_addresses} == set(usable or ["127.0.0.1"])
    second = detect(several)
    assert set(second.store_addresses) <= {*first.store_addresses, *first.also_at}


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_every_rank_raises_that_any_address_is_none(address: str) -> None:
    for rank in ("0", "1"):
        with pytest.raises(InvalidArgument, match=f"MASTER_ADDR={address}: name the address"):
            detect({**TORCH, "MASTER_ADDR": address, "RANK": rank})


def test_the_port_can_be_chosen() -> None:
    assert detect({**TORCH, "PYCOLLECTIVE_PORT": "4711"}).store_addresses == ("127.0.0.1:4711",)


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


@pytest.mark.parametrize("name", ["HOROVOD_SIZE HOROVOD_RANK"])
def test_a_launcher_that_cannot_be_joined_is_refused_with_what_works(name: str) -> None:
    size, rank = name.split()
    with pytest.raises(Unsupported) as info:
        detect({size: "2", rank: "1"})
    assert f"RANK=${rank} WORLD_SIZE=${size}" in str(info.value)
    assert detect({size: "2", rank: "1", **TORCH}).size == 4  # after following that advice
    assert detect({size: "1", rank: "0"}).size == 1


PADDLE = {
    "PADDLE_TRAINER_ID": "2",
    "PADDLE_TRAINERS_NUM": "3",
    "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:6070,10.0.0.1:6071,10.0.0.2:6070",
    "PADDLE_LOCAL_RANK": "0",
    "PADDLE_LOCAL_SIZE": "1",
}


def test_paddles_launcher_says_the_place_and_the_first_endpoint_the_host() -> None:
    place = detect(PADDLE)
    assert (place.rank, place.size, place.local_rank, place.local_size) == (2, 3, 0, 1)
    assert (place.launcher, place.hosts_store, place.one_host) == ("Paddle", False, False)
    assert {address.rpartition(":")[0] for address in place.store_addresses} == {"10.0.0.1"}
    assert detect({**PADDLE, "PADDLE_TRAINER_ID": "1"}).store_addresses == place.store_addresses
    other = {**PADDLE, "PADDLE_TRAINER_ENDPOINTS": PADDLE["PADDLE_TRAINER_ENDPOINTS"].replace("607", "608")}
    assert detect(other).store_addresses != place.store_addresses  # another run on the same hosts


def test_paddles_spawn_leaves_local_places_to_the_endpoints() -> None:
    short = {name: PADDLE[name] for name in list(PADDLE)[:3]}
    assert (detect(short).local_rank, detect(short).local_size) == (0, 1)
    first = detect({**short, "PADDLE_TRAINER_ID": "1"})
    assert (first.local_rank, first.local_size) == (1, 2)


def test_variables_that_place_paddles_functions_are_not_taken_for_its_launcher(pmi_fd: str) -> None:
    """Our launchers and init() set it for ranks, whether or not our own variables are set.

    Their children inherit it.
    """
    mine = variables_of(2, 3, 1)
    assert detect(mine) == detect({})
    for launcher in set(ALL) - {"paddle"}:
        alone = detect(environment_of(launcher, pmi_fd))
        place = detect({**environment_of(launcher, pmi_fd), **mine})
        assert (place.launcher, place.rank, place.job) == (alone.launcher, alone.rank, alone.job)
    assert detect({**mine, **PADDLE}).launcher == "Paddle"  # a rank started its launcher
    with pytest.raises(InvalidArgument, match="did not start this process"):
        detect({**mine, "PYCOLLECTIVE_LAUNCHER": "paddle"})
    by_hand = {name: mine[name] for name in list(mine)[:2]}
    with pytest.raises(InvalidArgument, match="PADDLE_TRAINER_ENDPOINTS missing"):
        detect(by_hand)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"PADDLE_TRAINER_ENDPOINTS": ""}, "PADDLE_TRAINER_ENDPOINTS missing"),
        ({"PADDLE_TRAINER_ENDPOINTS": "a:1,b:2"}, "has 2: a:1,b:2"),
        ({"PADDLE_TRAINER_ENDPOINTS": "a:1,b:2,c"}, "'c' is not host:port"),
        ({"PADDLE_TRAINER_ID": "3"}, "PADDLE_TRAINER_ID=3 PADDLE_TRAINERS_NUM=3"),
    ],
)
def test_what_paddle_does_not_set_like_that_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        detect({**PADDLE, **change})


def test_our_own_launcher_wins_over_what_it_was_started_in() -> None:
    key = new_key()
    fd = key_file(key)
    try:
        place = detect({**ours(fd), **TORCH, "OMPI_COMM_WORLD_SIZE": "9", "OMPI_COMM_WORLD_RANK": "0"})
        assert (place.rank, place.size, place.launcher) == (2, 3, "pycollective run")
        assert place.store_addresses == ("127.0.0.1:4711",)
        assert not place.hosts_store
        assert place.one_host
        assert (place.key, place.job) == (key, job_of_run(key))
        assert repr(key)[2:-1] not in repr(place)
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


def test_what_is_derived_from_a_key_does_not_give_it_away_and_differs() -> None:
    key, other = new_key(), new_key()
    assert job_id(key) != job_id(other)
    assert key[:16] != job_id(key)
    assert key_id(key) == key_id(key) != key_id(other)
    assert len(key_id(key)) == 8
    assert key_id(key) not in key.hex()


# The variables of each launcher as observed, for rank 1 of 4.
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "PMIX_NAMESPACE": "prterun-vm-15875@1",
    "PMIX_RANK": "1",
}
HYDRA = {
    "PMI_RANK": "1",
    "PMI_SIZE": "4",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2",
    "PMI_HOSTNAME": "n0",
}
SRUN = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NODELIST": "localhost,n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1(x2)",
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "0",
    "SLURM_NTASKS": "4",
}
PMI2 = {**SRUN, "PMI_RANK": "1", "PMI_SIZE": "4", "PMI_JOBID": "17.0"}
TORCHRUN = {
    **TORCH,
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "9",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
PADDLE_4 = {
    "PADDLE_TRAINER_ID": "1",
    "PADDLE_TRAINERS_NUM": "4",
    "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:6070,10.0.0.1:6071,10.0.0.2:6070,10.0.0.2:6071",
    "PADDLE_LOCAL_RANK": "1",
    "PADDLE_LOCAL_SIZE": "2",
}
ALL = {
    "torchrun": TORCHRUN,
    "variables": {**TORCH, "LOCAL_WORLD_SIZE": "2"},
    "paddle": PADDLE_4,
    "openmpi": OPEN_MPI,
    "hydra": HYDRA,
    "slurm": SRUN,
    "slurm-pmi2": PMI2,
}


@pytest.fixture
def pmi_fd() -> Iterator[str]:
    """A descriptor as mpiexec or srun hands it over."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield str(ours.fileno())


def environment_of(launcher: str, pmi_fd: str) -> dict[str, str]:
    return {**ALL[launcher], **({"PMI_FD": pmi_fd} if launcher in ("hydra", "slurm-pmi2") else {})}


@pytest.mark.parametrize("launcher", ALL)
def test_every_launcher_gives_a_place(launcher: str, pmi_fd: str) -> None:
    place = detect(environment_of(launcher, pmi_fd))
    assert (place.rank, place.size, place.local_rank, place.local_size) == (1, 4, 1, 2)
    assert not place.one_host
    assert (
        (place.kvs is None)
        == (len(place.store_addresses) > 0)
        == (launcher in ("variables", "paddle", "slurm"))
    )
    assert not place.hosts_store
    assert set(place.variables) <= set(environment_of(launcher, pmi_fd))
    chosen = detect({**environment_of(launcher, pmi_fd), "PYCOLLECTIVE_LAUNCHER": launcher})
    assert (chosen.launcher, chosen.job) == (place.launcher, place.job)


@pytest.mark.parametrize(
    ("launcher", "change"),
    [
        ("torchrun", {"LOCAL_WORLD_SIZE": "4"}),
        ("variables", {"LOCAL_WORLD_SIZE": "4"}),
        ("paddle", {"PADDLE_LOCAL_SIZE": "4"}),
        ("openmpi", {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}),
        ("hydra", {"MPI_LOCALNRANKS": "4"}),
        ("slurm", {"SLURM_STEP_TASKS_PER_NODE": "4"}),
        ("slurm-pmi2", {"SLURM_STEP_TASKS_PER_NODE": "4"}),
    ],
)
def test_all_ranks_are_on_one_host_where_the_launchers_word_proves_it(
    launcher: str, change: dict[str, str], pmi_fd: str
) -> None:
    place = detect({**environment_of(launcher, pmi_fd), **change})
    assert place.one_host
    assert all(address.startswith("127.0.0.1:") for address in place.store_addresses)


@pytest.mark.parametrize(
    ("outer", "inner", "wins"),
    [
        ("slurm", "openmpi", "Open MPI"),  # mpirun starts its helpers with srun
        ("slurm", "hydra", "MPICH"),
        ("slurm-pmi2", "hydra", "MPICH"),
        ("slurm", "torchrun", "torchrun"),  # srun torchrun ...
        ("slurm", "paddle", "Paddle"),  # srun python -m paddle.distributed.launch ...
        ("openmpi", "torchrun", "torchrun"),  # mpirun torchrun ...
        ("openmpi", "variables", "torch variables"),  # mpirun bash -c 'RANK=... python ...'
    ],
)
def test_the_inner_launcher_wins(outer: str, inner: str, wins: str, pmi_fd: str) -> None:
    both = {**environment_of(outer, pmi_fd), **environment_of(inner, pmi_fd)}
    assert detect(both).launcher == wins
    if outer != "slurm-pmi2":  # its descriptor is lost in hydra
        assert detect({**both, "PYCOLLECTIVE_LAUNCHER": outer}).launcher != wins


@pytest.mark.parametrize("launcher", ["openmpi", "hydra", "slurm", "slurm-pmi2"])
@pytest.mark.parametrize("extra", [{"LOCAL_RANK": "1"}, {"RANK": "0", "WORLD_SIZE": "2"}])
def test_variables_set_beside_a_launcher_do_not_disturb_it(
    launcher: str, extra: dict[str, str], pmi_fd: str
) -> None:
    plain = environment_of(launcher, pmi_fd)
    assert detect({**plain, **extra}).launcher == detect(plain).launcher


def test_intel_mpi_is_recognized_by_its_name(pmi_fd: str) -> None:
    assert detect({**HYDRA, "PMI_FD": pmi_fd, "I_MPI_HYDRA_UUID": "1"}).launcher == "Intel MPI"


def test_a_world_of_one_needs_no_kvs() -> None:
    for environment in (
        {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
        {"PMI_SIZE": "1", "PMI_RANK": "0"},
        {**SRUN, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {**PMI2, "PMI_SIZE": "1", "PMI_RANK": "0", "PMI_FD": "9"},
        {"TORCHELASTIC_RUN_ID": "a", **TORCH, "WORLD_SIZE": "1", "RANK": "0"},
    ):
        place = detect(environment)
        assert (place.size, place.kvs, place.store_addresses) == (1, None, ())
        assert place.launcher != "single"


def dropped(environment: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in names}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (dropped(OPEN_MPI, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE missing"),
        (dropped(OPEN_MPI, "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_RANK missing"),
        (dropped(OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK"), "OMPI_COMM_WORLD_LOCAL_RANK missing"),
        (dropped(OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE"), "OMPI_COMM_WORLD_LOCAL_SIZE missing"),
        (dropped(OPEN_MPI, "PMIX_NAMESPACE"), "PMIX_NAMESPACE is not set.*env -i.*Pass them on"),
        (HYDRA, "PMI_FD is not set.*srun --mpi=pmi2"),
        ({**HYDRA, "PMI_FD": "1000000"}, "PMI_FD=1000000 is not open.*is not a rank itself.*pass_fds"),
        ({**HYDRA, "PMI_FD": "x"}, "PMI_FD='x'"),
        ({**dropped(HYDRA, "MPI_LOCALRANKID"), "PMI_FD": "0"}, "MPI_LOCALRANKID missing"),
        ({**dropped(HYDRA, "MPI_LOCALNRANKS"), "PMI_FD": "0"}, "MPI_LOCALNRANKS missing"),
        (dropped(HYDRA, "PMI_SIZE"), "PMI_SIZE missing"),
        (dropped(HYDRA, "PMI_RANK"), "PMI_RANK missing"),
        ({"PMI_FD": "0"}, "PMI_RANK PMI_SIZE missing"),
        *((dropped(SRUN, name), f"{name} missing") for name in ("SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")),
        *((dropped(SRUN, name), f"{name} missing") for name in ("SLURM_NODEID", "SLURM_STEP_NODELIST")),
        *((dropped(SRUN, name), f"{name} missing") for name in ("SLURM_JOB_ID", "SLURM_STEP_TASKS_PER_NODE")),
        ({**SRUN, "SLURM_NODEID": "3"}, "SLURM_NODEID=3 .* do not fit"),
        ({**SRUN, "SLURM_LOCALID": "2"}, "SLURM_LOCALID=2 do not fit"),
        ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "2x"}, "'2x' is not a number of tasks per node"),
        (dropped(SRUN, "SLURM_PROCID"), "SLURM_JOB_ID=17.*room for 4 tasks.*srun -K"),
        (dropped(SRUN, "SLURM_STEP_ID"), "SLURM_JOB_ID=17.*room for 4 tasks.*srun -K"),  # a batch script
        ({**SRUN, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}, "room for 4 tasks"),
        ({"SLURM_JOB_ID": "1", "SLURM_TASKS_PER_NODE": "2(x2)"}, "room for 4 tasks.*=single"),
        (dropped(TORCHRUN, "LOCAL_RANK"), "LOCAL_RANK missing"),
        (dropped(TORCHRUN, "MASTER_PORT"), "MASTER_PORT missing"),
        (
            {**TORCH, "PYCOLLECTIVE_LAUNCHER": "mpi"},
            "PYCOLLECTIVE_LAUNCHER='mpi' is not one of pycollective, torchrun",
        ),
        ({**TORCH, "PYCOLLECTIVE_LAUNCHER": "slurm"}, "PYCOLLECTIVE_LAUNCHER=slurm, but .* nothing of it"),
    ],
)
def test_a_launcher_that_is_there_only_in_part_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        detect(environment)


def test_mpiexec_that_listens_on_a_port_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"PMI_PORT=n0:4711 .* without -pmi-port"):
        detect({"PMI_PORT": "n0:4711", "PMI_ID": "1"})


def test_one_task_in_an_allocation_and_a_world_of_one_on_demand() -> None:
    assert detect({"SLURM_JOB_ID": "1", "SLURM_TASKS_PER_NODE": "1"}).size == 1
    assert detect({**TORCH, "PYCOLLECTIVE_LAUNCHER": "single"}).size == 1
    assert "single" not in DETECTORS


def test_the_store_of_srun_is_on_the_first_host_at_a_port_that_follows_from_job_and_step() -> None:
    def at(**change: str) -> Placement:
        return detect({**SRUN, "SLURM_STEP_NODELIST": "127.0.0.1,n[1-2]", **change})

    assert at(SLURM_PROCID="0", SLURM_LOCALID="0").hosts_store
    assert len(at().store_addresses) == 16
    assert at().store_addresses == at(SLURM_PROCID="0", SLURM_LOCALID="0").store_addresses
    assert (
        at(SLURM_STEP_ID="1").store_addresses != at().store_addresses != at(SLURM_JOB_ID="18").store_addresses
    )
