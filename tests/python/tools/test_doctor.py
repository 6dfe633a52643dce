"""`pycollective doctor`: every result of every check occurs, and no secret is printed.

It is quick, and it names the ranks.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pycollective import _core, testing
from pycollective.bootstrap.detect import Placement, detect
from pycollective.bootstrap.interfaces import LOOPBACK, RUNNING, UP
from pycollective.bootstrap.key import key_id
from pycollective.runtime.environment_names import known
from pycollective.tools.doctor import CheckResult, Facts, check, commands, keys, names, round_trips, world
from pycollective.tools.doctor.sockets import own_addresses

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[3]
QUICK_S = 2.0  # of processor time, which depends little on the machine's load
SOON_S = 20.0  # far below the 60 s of a command that hangs
SECRET = "correct-horse-battery-staple"
LO = [("lo", "127.0.0.1", UP | RUNNING | LOOPBACK)]
DOCKER0 = [("docker0", "172.17.0.1", UP)]
OTHERS = [("eth0", address, UP | RUNNING) for address in ("10.0.0.5", "fe80::1", "fd00::5")] + [
    ("ib0", "10.1.0.5", UP | RUNNING)
]


def placed(size: int, local_size: int) -> Placement:
    """Returns the place of rank 0 under a launcher that specifies it."""
    return dataclasses.replace(
        detect({}), size=size, local_size=local_size, launcher="mpirun", one_host=local_size == size
    )


ALONE = Facts(
    known_variables=known(_core.environment_markdown()),
    packages={"numpy": "2.0.0"},
    placement=detect({}),
    host_addresses=("127.0.1.1",),
    interfaces=[*LO, *OTHERS, *DOCKER0],
    routes=["ib0"],
)
TWO_HOSTS = dataclasses.replace(
    ALONE, placement=placed(4, 2), host_addresses=("10.0.0.5",), cores=frozenset({0, 1})
)


# name: (facts, files below /, check, status, words of the line, words of the remedy)
CASES: dict[str, tuple[Facts, Mapping[str, str], str, str, str, str]] = {}


def case(
    name: str,
    status: str,
    words: str,
    remedy: str = "",
    *,
    base: Facts = ALONE,
    files: Mapping[str, str] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> None:
    """Adds a row. The rows of one check differ in their findings."""
    facts = dataclasses.replace(base, **(changes or {}))
    CASES[f"{len(CASES)} {name}: {words}"] = (facts, files or {}, name, status, words, remedy)


# fmt: off
case("pycollective", "OK", "0.1.0 (cp311-x), reductions for AVX2", changes={"wheel": "cp311-x", "vectors": "AVX2"})
case("pycollective", "OK", "not installed as a package")
case("python", "OK", "3.11.0")
case("numpy", "OK", "2.0.0")
case("numpy", "FAIL", "not installed", "pip install 'numpy>=1.24'", changes={"packages": {}})
case("numpy", "FAIL", "1.23.5 is older than 1.24", "numpy>=1.24", changes={"packages": {"numpy": "1.23.5"}})
case("torch", "OK", "2.13.0+cpu", changes={"packages": {"numpy": "2.0", "torch": "2.13.0+cpu"}})
case("torch", "WARN", "2.1.0 is older than 2.4", "torch>=2.4", changes={"packages": {"torch": "2.1.0"}})
case("paddle", "WARN", "3.2.2 is older than 3.3", "pip install 'paddlepaddle>=3.3'",
     changes={"packages": {"paddle": "3.2.2"}})
case("other array libraries", "OK", "not installed: jax, paddle, cupy",
     changes={"packages": {"numpy": "2", "torch": "3"}})
case("other array libraries", "OK", "not installed: torch, jax, paddle, cupy, ml_dtypes")

case("launcher", "OK", "a world of one")
case("launcher", "OK", "mpirun: rank 0 of 4 (OMPI_COMM_WORLD_RANK=0)", base=TWO_HOSTS,
     changes={"env": {"OMPI_COMM_WORLD_RANK": "0"}})
case("launcher", "FAIL", "RANK set, but WORLD_SIZE missing", "pycollective run",
     changes={"placement": None, "problem": "RANK set, but WORLD_SIZE missing"})
case("mpirun", "OK", "mpirun (Open MPI) 4.1.4", changes={"commands": {"mpirun": "mpirun (Open MPI) 4.1.4; bugs"}})
case("mpiexec", "OK", "HYDRA build details: Version: 5.0.2",
     changes={"commands": {"mpiexec": "HYDRA build details:; Version:     5.0.2; CC: gcc"}})
case("srun", "WARN", "no answer within 1 s", "srun --version",
     changes={"commands": {"srun": "fails: no answer within 1 s"}})
case("srun", "OK", "no Slurm is configured here",
     changes={"commands": {"srun": "fails: srun: fatal: Could not establish a configuration source"}})
case("torchrun", "OK", "/bin/torchrun, torch 2.13.0",
     changes={"commands": {"torchrun": "/bin/torchrun"}, "packages": {"torch": "2.13.0"}})
case("torchrun", "OK", "/opt/torchrun", changes={"commands": {"torchrun": "/opt/torchrun"}})
case("other launchers", "OK", "none on PATH")
case("variables", "OK", "none of PYCOLLECTIVE_* is set")
case("variables", "OK", "PYCOLLECTIVE_LOG=info", changes={"env": {"PYCOLLECTIVE_LOG": "info"}})
case("variables", "WARN", "PYCOLLECTIVE_TIMEOUT is set, and nothing reads it", "perhaps PYCOLLECTIVE_TIMEOUT_S?",
     changes={"env": {"PYCOLLECTIVE_TIMEOUT": "1"}})
case("variables", "WARN", "PYCOLLECTIVE_ZZ is set", "pycollective env", changes={"env": {"PYCOLLECTIVE_ZZ": "1"}})

case("security", "OK", "auth")
case("security", "OK", "encrypt, strict", changes={"env": {"PYCOLLECTIVE_SECURITY": "strict,encrypt"}})
case("security", "FAIL", "crypt is not one of", "auth", changes={"env": {"PYCOLLECTIVE_SECURITY": "crypt"}})

case("host name", "OK", "is 127.0.1.1")
case("host name", "OK", "is 10.0.0.5", base=TWO_HOSTS)
case("host name", "WARN", "127.0.1.1: other hosts cannot reach it", "/etc/hosts", base=TWO_HOSTS,
     changes={"host_addresses": ("127.0.1.1",)})
case("host name", "WARN", "does not resolve: unknown", "/etc/hosts", changes={"host_addresses": "unknown"})
case("host name", "FAIL", "does not resolve: no answer", "/etc/hosts", base=TWO_HOSTS,
     changes={"host_addresses": "no answer"})
case("interface eth0", "OK", "10.0.0.5 fe80::1 fd00::5")
case("interface docker0", "OK", "172.17.0.1 (down)")
case("rank 0 listens on", "OK", "127.0.0.1: all ranks are on this host")
case("rank 0 listens on", "OK", "10.1.0.5, 10.0.0.5, fd00::5: ib0 has the default route", base=TWO_HOSTS)
case("rank 0 listens on", "FAIL", "has no network address", "ip link", base=TWO_HOSTS,
     changes={"interfaces": [*LO, *DOCKER0]})
case("rank 0 listens on", "OK", "fd00::5: PYCOLLECTIVE_INTERFACE=fd00::5", base=TWO_HOSTS,
     changes={"env": {"PYCOLLECTIVE_INTERFACE": "fd00::5"}})
case("rank 0 listens on", "FAIL", "no interface or address 'eth7'", "PYCOLLECTIVE_INTERFACE",
     changes={"env": {"PYCOLLECTIVE_INTERFACE": "eth7"}})
case("sockets", "OK", "rmem_max 212992, wmem_max unknown, somaxconn 4096", "net.core.rmem_max=16777216",
     files={"proc/sys/net/core/rmem_max": "212992\n", "proc/sys/net/core/somaxconn": "4096\n"})

EIGHT = {"sys/devices/system/cpu/online": "0-3,8-11\n"}
case("cores", "OK", "2 of 8 usable (0-1), 2 ranks here", base=TWO_HOSTS, files=EIGHT)
case("cores", "WARN", "2 of 2 usable (0-1), 3 ranks here", "at most 2 ranks", base=TWO_HOSTS,
     changes={"placement": placed(6, 3)}, files={"sys/devices/system/cpu/online": "0-1"})
case("cores", "OK", "1 of 8 usable (3), 4 ranks here", files=EIGHT,
     changes={"placement": placed(4, 4), "cores": frozenset({3})})
case("threads", "OK", "not set")
case("threads", "OK", "OMP_NUM_THREADS=1", base=TWO_HOSTS, changes={"env": {"OMP_NUM_THREADS": "1"}})
case("threads", "OK", "OMP_NUM_THREADS=1", changes={"env": {"OMP_NUM_THREADS": "1"}, "placement": placed(3, 3)})
case("threads", "WARN", "OMP_NUM_THREADS=2 in each of 2 ranks, on 2 cores", "OMP_NUM_THREADS=1", base=TWO_HOSTS,
     changes={"env": {"OMP_NUM_THREADS": "2"}})
CGROUP_2 = {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/b/memory.max": "2147483648\n"}
CGROUP_1 = {"proc/self/cgroup": "4:memory:/x\n1:cpu,cpuacct:/x\n", "proc/1/cgroup": "1:cpu:/docker/77\n",
            "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}
case("limits", "OK", "no container, no CPU quota, no memory limit")
case("limits", "OK", "no container, CPU quota 1.5 of 1 cores, memory limit 2.0 GiB", files=CGROUP_2)
case("limits", "WARN", "CPU quota 1.5 of 2 cores", "at most 1 ranks", base=TWO_HOSTS, files=CGROUP_2)
case("limits", "WARN", "in a container, CPU quota 0.5 of 1 cores, no memory limit", "--cpus", files=CGROUP_1)
case("limits", "OK", "in a container", files={".dockerenv": ""})
case("open files", "OK", "65536")
case("open files", "OK", "unlimited", changes={"open_files": (-1, -1)})
case("open files", "WARN", "is 256; 1 ranks may need 1024", "ulimit -n 1024", changes={"open_files": (256, 4096)})
case("open files", "WARN", "is 1024; 400 ranks may need 1600", "raise the hard limit (1024)",
     changes={"open_files": (1024, 1024), "placement": placed(400, 2)})
case("open files", "WARN", "is 1024; 64 ranks may need 1216", "ulimit -n 1216",
     changes={"open_files": (1024, 4096), "placement": placed(64, 2), "env": {"PYCOLLECTIVE_TCP_SOCKETS": "16"}})
case("locked memory", "OK", "ulimit -l is 8192", changes={"locked_bytes": 8 << 20})
case("shared memory", "OK", "1024 MiB of them free")
case("shared memory", "WARN", "there is no /dev/shm", "--shm-size", changes={"shared_memory": None})
case("shared memory", "WARN", "63 MiB of them free", "remount", changes={"shared_memory": (1 << 30, 63 << 20)})
CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
case("clock", "OK", "tsc", files={CLOCK: "tsc\n"})
case("clock", "WARN", "hpet", "dmesg", files={CLOCK: "hpet\n"})
case("kernel", "OK", "6.0")
case("kernel", "FAIL", "4.18.0-553.el8", "5.3 or later", changes={"kernel": "4.18.0-553.el8"})
case("GPU", "OK", "no GPU")
case("GPU", "OK", "NVIDIA H200, 570.1, 143771 MiB",
     changes={"commands": {"nvidia-smi": "NVIDIA H200, 570.1, 143771 MiB"}})
case("GPU", "WARN", "couldn't communicate with the NVIDIA driver", "modprobe",
     changes={"commands": {"nvidia-smi": "fails: couldn't communicate with the NVIDIA driver"}})
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_a_check_says_what_it_found_and_what_to_do(name: str, tmp_path: Path) -> None:
    facts, files, checked, status, words, remedy = CASES[name]
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    env = {"HOME": str(tmp_path), **facts.env}
    lines = check(dataclasses.replace(facts, root=tmp_path, env=env))
    found = [line for line in lines if line.check == checked and words in line.found]
    assert [line.status for line in found] == [status], [line.text() for line in lines]
    assert remedy in found[0].remedy


def test_whatever_is_not_ok_has_a_remedy() -> None:
    for facts, *_ in CASES.values():
        assert all(line.remedy for line in check(facts) if line.status != "OK")


def key(tmp_path: Path, content: bytes, mode: int = 0o600) -> Path:
    path = tmp_path / "pycollective" / "key"
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(mode)
    return path


def of_key(tmp_path: Path) -> CheckResult:
    return keys.keys({"XDG_CONFIG_HOME": str(tmp_path)})[-1]


def test_a_key_file_is_good_if_only_its_owner_can_read_it(tmp_path: Path) -> None:
    assert of_key(tmp_path).status == "OK"  # there is none yet
    path = key(tmp_path, bytes(range(32)))
    assert of_key(tmp_path).found == f"{path}, key {key_id(bytes(range(32)))}"


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [(bytes(32), 0o640, "mode 0640.*chmod 600"), (b"short", 0o600, "holds no key")],
)
def test_a_key_file_that_would_be_refused_fails(
    tmp_path: Path, content: bytes, mode: int, words: str
) -> None:
    path = key(tmp_path, content, mode)
    line = of_key(tmp_path)
    assert line.status == "FAIL"
    assert re.search(words, line.found)
    assert str(path) in line.remedy


def test_a_key_file_that_is_no_file_blocks_no_rank(tmp_path: Path) -> None:
    path = key(tmp_path, b"")
    path.unlink()
    os.mkfifo(path, 0o600)
    assert "not a regular file" in of_key(tmp_path).found
    path.unlink()
    path.symlink_to(path)
    assert (of_key(tmp_path).status, "cannot be read" in of_key(tmp_path).found) == ("FAIL", True)
    named = keys.keys({"PYCOLLECTIVE_KEY_FILE": "/nowhere", "XDG_CONFIG_HOME": "/nowhere"})
    assert [(line.check, line.status) for line in named[1:]] == [
        ("key file", "FAIL"),
        ("user's key file", "OK"),
    ]


def on_path(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_commands_are_asked_all_at_once_and_none_holds_us_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "ANSWER_S", 0.3)
    on_path(tmp_path, "mpirun", "echo 'mpirun (Open MPI) 9'; echo; echo more")
    on_path(tmp_path, "mpiexec", "echo broken >&2; exit 3")
    on_path(tmp_path, "srun", "exec sleep 60")
    on_path(tmp_path, "nvidia-smi", "exec sleep 60")
    on_path(tmp_path, "torchrun", "exec sleep 60")  # is never run
    (tmp_path / "ray").write_text("not executable")
    began = time.monotonic()
    found = commands.answers(f"{tmp_path}:{os.defpath}")
    assert time.monotonic() - began < SOON_S
    assert found["mpirun"] == "mpirun (Open MPI) 9; more"
    assert found["mpiexec"] == "fails: broken"
    assert found["srun"] == found["nvidia-smi"] == "fails: no answer within 0.3 s"
    assert found["torchrun"] == str(tmp_path / "torchrun")
    assert "ray" not in found


def test_a_resolver_that_thinks_does_not_hold_us_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "127.0.0.1" in names.addresses_of("localhost")
    assert isinstance(names.addresses_of("no such host"), str)
    answered = threading.Event()
    monkeypatch.setattr(names, "RESOLVE_S", 0.1)
    monkeypatch.setattr(names.socket, "getaddrinfo", lambda *_, **__: answered.wait(60) and [])
    assert names.addresses_of("localhost") == "no answer within 0.1 s"
    answered.set()


def doctor(
    *words: str, ranks: int = 0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    cli = [sys.executable, "-m", "pycollective"]
    launcher = [*cli, "run", "--no-prefix", "-n", str(ranks), "-m", "pycollective"] if ranks else cli
    return subprocess.run(
        [*launcher, "doctor", *words],
        env={**os.environ, "PATH": os.defpath, **(env or {})},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_doctor_is_quick_and_its_exit_code_reports_whether_anything_failed(tmp_path: Path) -> None:
    began_s = children_s()
    well = doctor(env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert children_s() - began_s < QUICK_S
    assert (well.returncode, well.stderr) == (0, "")
    assert re.search(r"^OK +launcher +single: a world of one$", well.stdout, re.MULTILINE)
    assert "FAIL" not in well.stdout
    ill = doctor(env={"RANK": "0"})
    assert ill.returncode == 1
    assert re.search(r"^FAIL +launcher .*WORLD_SIZE missing", ill.stdout, re.MULTILINE)


def test_json_is_a_list_of_all_lines(tmp_path: Path) -> None:
    ended = doctor("--json", env={"XDG_CONFIG_HOME": str(tmp_path)})
    lines = json.loads(ended.stdout)
    assert all(sorted(line) == ["check", "found", "remedy", "status"] for line in lines)
    assert {line["status"] for line in lines} <= {"OK", "WARN", "FAIL"}
    printed = doctor(env={"XDG_CONFIG_HOME": str(tmp_path)}).stdout
    assert all(re.search(rf"^{line['status']} +{line['check']} ", printed, re.MULTILINE) for line in lines)


@pytest.mark.parametrize("words", [(), ("--json",)])
@pytest.mark.parametrize("ranks", [0, 2])
def test_nothing_secret_is_printed(tmp_path: Path, words: tuple[str, ...], ranks: int) -> None:
    path = key(tmp_path, SECRET.encode().ljust(32, b"!"))
    named = tmp_path / "named"
    named.write_text(SECRET.encode().hex().ljust(64, "0"))
    named.chmod(0o600)
    names_of_secrets = (
        "PYCOLLECTIVE_KEY",
        "PYCOLLECTIVE_PASSWORD",
        "TORCHELASTIC_RUN_ID",
        "PMI_SECURITY",
        "AWS_KEY",
    )
    secrets = {name: SECRET for name in names_of_secrets}
    env = {**secrets, "XDG_CONFIG_HOME": str(tmp_path), "PYCOLLECTIVE_KEY_FILE": str(named)}
    ended = doctor(*words, ranks=ranks, env=env)
    printed = ended.stdout + ended.stderr
    assert str(path) in printed
    assert "PYCOLLECTIVE_PASSWORD" in printed
    assert SECRET not in printed
    assert SECRET.encode().hex()[:32] not in printed


def test_under_a_launcher_the_world_is_made_and_rank_0_prints_for_all(tmp_path: Path) -> None:
    ended = doctor("--json", ranks=3, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = {line["check"]: line for line in json.loads(ended.stdout)}
    pids = set()
    for rank in range(3):
        found = re.fullmatch(
            r"host \S+, pid (\d+), cores [\d,-]+, address 127\.0\.0\.1", lines[f"rank {rank}"]["found"]
        )
        assert found, lines[f"rank {rank}"]
        pids.add(found[1])
    assert len(pids) == 3
    summary, head, *rows = lines["round trips"]["found"].splitlines()
    assert re.match(r"\d+ us \(ranks \d and \d\) to \d+ us \(ranks \d and \d\)$", summary)
    assert head.split() == ["us", "0", "1", "2"]
    cells = [row.split()[1:] for row in rows]
    for a, b in itertools.product(range(3), range(3)):
        assert cells[a][b] == cells[b][a]
        assert (cells[a][b] == "-") == (a == b)
    alone = json.loads(doctor("--json", "--world").stdout)
    assert "rank 0" in {line["check"] for line in alone}


def test_without_world_nothing_is_joined() -> None:
    variables = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }
    ended = doctor("--no-world", env=variables)
    assert ended.returncode == 0
    assert "rank 0 of 2" in ended.stdout


SHORT = """
import sys
from pycollective import cli
from pycollective.tools.doctor import world
world.INIT_S = 0.5
sys.exit(cli.main(["doctor", "--json"]))
"""


def absent(fifo: str) -> tuple[int, str, str]:
    """Rank 2 never calls doctor, and ends after the other ranks."""
    ends = os.open(fifo, os.O_RDWR)  # opens without waiting
    if os.environ["RANK"] == "2":
        for _ in range(2):
            os.read(ends, 1)
        return 0, "", ""
    fd = int(os.environ["PYCOLLECTIVE_KEY_FD"])
    ended = subprocess.run(
        [sys.executable, "-c", SHORT], pass_fds=[fd], capture_output=True, text=True, timeout=30, check=False
    )
    os.write(ends, b" ")
    return ended.returncode, ended.stdout, ended.stderr


def test_a_world_that_does_not_come_about_fails_on_every_rank_and_names_the_missing(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "ends")
    first, second, _ = testing.run(absent, 3, str(tmp_path / "ends"), init=False, env={"PATH": os.defpath})
    assert first[0] == second[0] == 1
    [line] = [line for line in json.loads(first[1]) if line["status"] == "FAIL"]
    assert line["check"] == "world"
    assert line["remedy"]
    assert re.search(r"CollectiveTimeout: .*\b2\b", line["found"])
    assert second[1] == ""  # standard output is rank 0's
    assert re.search(r"^FAIL +world +CollectiveTimeout", second[2], re.MULTILINE)
    assert "OK " not in second[2]


def about(host: str, cores: list[int], *lines: CheckResult) -> world.About:
    rows = [dataclasses.asdict(line) for line in lines]
    return {"host": host, "pid": 1, "cores": cores, "addresses": [], "lines": rows}


def test_what_is_wrong_elsewhere_is_said_once_and_with_the_rank() -> None:
    shared, files = (
        CheckResult("shared memory", "WARN", "small", "more"),
        CheckResult("open files", "WARN", "few", "more"),
    )
    lines = world.of_others(
        [shared], [about("a", [0], shared), about("a", [1], shared, files), about("b", [0], files)]
    )
    assert lines == [dataclasses.replace(files, check="rank 1: open files")]


def test_ranks_that_share_cores_are_found_whatever_they_are_bound_to() -> None:
    bound = [about("a", [0]), about("a", [1]), about("b", [0])]
    assert world.shared_cores(bound) == []
    [line] = world.shared_cores([*bound, about("b", [0])])
    assert (line.status, line.found) == ("WARN", "2 ranks share 1 cores (0) of b")


@pytest.mark.parametrize("size", range(1, 18))
def test_every_two_ranks_are_paired_once_and_none_with_two_at_a_time(size: int) -> None:
    met = []
    for round_number in range(size + size % 2 - 1):
        partners = {rank: round_trips.partner(rank, round_number, size) for rank in range(size)}
        pairs = {(a, b) for a, b in partners.items() if b is not None}
        assert all(partners[b] == a for a, b in pairs)
        met += [(a, b) for a, b in pairs if a < b]
    assert sorted(met) == list(itertools.combinations(range(size), 2))


def test_round_trips_that_were_not_measured_are_counted() -> None:
    assert round_trips.table([{}, {}]) == "none measured"
    assert "2 pairs of 3 in 2 s" in round_trips.table([{1: 1e-5, 2: 2e-5}, {}, {}])
    assert "\n" not in round_trips.table([{1: 1e-5}] + [{}] * 16)


def test_addresses_are_those_of_our_own_established_connections(tmp_path: Path) -> None:
    for folder in ("fd", "net"):
        (tmp_path / folder).mkdir()
    for fd, target in (("3", "socket:[11]"), ("4", "socket:[12]"), ("5", "pipe:[13]"), ("6", "socket:[16]")):
        (tmp_path / "fd" / fd).symlink_to(target)
    row = "   0: {}:1F90 {}:0016 {} 0:0 0:0 0 0 0 {} 1\n".format
    ipv4, ipv6 = "0500000A", "000080FE000000000000000001000000"
    listens, others, pipes = (
        row("0100007F", ipv4, "0A", 12),
        row("0700000A", ipv4, "01", 77),
        row("0800000A", ipv4, "01", 13),
    )
    (tmp_path / "net/tcp").write_text("head\n" + row(ipv4, ipv4, "01", 11) + listens + others + pipes)
    (tmp_path / "net/tcp6").write_text("head\n" + row(ipv6, ipv6, "01", 16))
    assert own_addresses(tmp_path) == ["10.0.0.5", "fe80::1"]


def generic(check: str) -> str:
    return re.sub(r"^(interface|rank) \S+$", r"\1", check)


def test_the_sample_in_the_documents_is_what_comes_out_in_shape(tmp_path: Path) -> None:
    sample = re.search(r"```text\n(.*?)```", (ROOT / "docs/doctor.md").read_text(), re.DOTALL)[1]
    heads = [line for line in sample.splitlines() if not line.startswith(" ")]
    shown = [re.fullmatch(r"(OK|WARN|FAIL) +(\S+(?: \S+)*)  +(\S.*)", line) for line in heads]
    assert all(shown), heads
    ended = doctor("--json", ranks=2, env={"XDG_CONFIG_HOME": str(tmp_path), "PYCOLLECTIVE_LOGS": "x"})
    real = {generic(line["check"]) for line in json.loads(ended.stdout)}
    may_be_there = {
        "torch",
        "jax",
        "paddle",
        "ml_dtypes",
        "other array libraries",
        "mpirun",
        "mpiexec",
        "srun",
        "other launchers",
        "cores",
    }
    assert {generic(line[2]) for line in shown} ^ real <= may_be_there
