"""Fixtures of every test.

pytest-timeout ends a test, and faulthandler (pyproject.toml) shows where.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import sampled
from forked_ranks import ForkServer
from processor_seconds import ProcessorSeconds

import pycollective as pc
from pycollective.launching import child

# A shell that starts pytest in the background may make it ignore these; the launcher and its ranks
# would then, too.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# In pyproject.toml it would be an unknown option for users' own tests in this clone, without that
# plugin.
os.environ.setdefault("PYTEST_TIMEOUT", "120")

LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LAUNCHER_PREFIXES = (
    "PYCOLLECTIVE_",
    "OMPI_",
    "PMIX_",
    "PMI_",
    "MPI_LOCAL",
    "SLURM_",
    "TORCHELASTIC_",
    "HOROVOD_",
    "PADDLE_",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fresh-ranks", action="store_true", help="start each rank of each test as a new interpreter"
    )
    parser.addoption(
        "--processor-seconds", action="store_true", help="print what the dearest tests and files cost"
    )


# The files that take longest. They are first, so that no worker of pytest-xdist runs one of them
# alone at the end.
LONGEST = (
    "launchers",
    "hosts",
    "examples_pytorch",
    "compare",
    "torch_backend",
    "torch_gpu",
    "collectives",
    "gpu_arrays",
    "torch_functional",
    "distributed_suite",
    "bench_on_gpus",
    "readme",
    "launch",
    "spawn",
    "failures",
    "hostile_network",
    "objects",
    "planned",
    "tune",
    "heap",
    "reproducible",
    "examples_elsewhere",
    "bench_binary",
    "jax_functional",
    "torch_trainers",
    "gpu_programs",
    "launch_machines",
)


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # pytest-xdist would put the files with most tests first
    if config.getoption("processor_seconds"):
        config.pluginmanager.register(ProcessorSeconds())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sampled.daily(config, items)
    places = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_report_header() -> str:
    return sampled.header()


DESCRIPTORS = pytest.StashKey[dict[str, str]]()


def _own_descriptors() -> dict[str, str]:
    """Returns the sockets, pipes, epolls and memory files of this process: what we open."""
    found = {}
    for fd in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(fd)
        except FileNotFoundError:  # the listing's own
            continue
        if target.startswith(("socket:", "pipe:", "anon_inode:", "/memfd:")):
            found[fd.name] = target
    return found


def _own_threads() -> list[str]:
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if name.startswith("pc-")]


def _processes_marked(marker: str) -> list[str]:
    """Returns every process that was started by this run, at any depth and with any new parent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("TESTS_OF_PYCOLLECTIVE") == marker:
                found.append(f"{process.pid}: {' '.join(process.cmdline())}")
        except psutil.Error:  # the process ended, or belongs to another user
            continue
    return found


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(pytestconfig: pytest.Config) -> Iterator[None]:
    """Checks that no descriptor, thread or process of ours remains after the last test."""
    marker = os.environ["TESTS_OF_PYCOLLECTIVE"] = str(os.getpid())
    # Stored, because a failed check runs again, and would then count the leftovers as there before.
    before = pytestconfig.stash.setdefault(DESCRIPTORS, _own_descriptors())
    yield
    after = _own_descriptors()
    assert {fd: what for fd, what in after.items() if before.get(fd) != what} == {}
    assert _own_threads() == []
    assert _processes_marked(marker) == []


@pytest.fixture(scope="session", autouse=True)
def no_key_in_the_users_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    yield
    os.environ.pop("XDG_CONFIG_HOME")
    if before is not None:
        os.environ["XDG_CONFIG_HOME"] = before


@pytest.fixture(scope="session", autouse=True)
def fork_server(
    nothing_left_behind: None, no_key_in_the_users_home: None, pytestconfig: pytest.Config
) -> Iterator[ForkServer]:
    """Forks the ranks of all worlds, except with the mark fresh_ranks and with --fresh-ranks."""
    server = ForkServer(late=LAUNCHER_VARIABLES + LAUNCHER_PREFIXES)
    with pytest.MonkeyPatch.context() as patch:
        if not pytestconfig.getoption("fresh_ranks"):
            patch.setattr(child, "start", server.start)
        yield server
    server.end()


@pytest.fixture(autouse=True)
def fresh_ranks(
    fork_server: ForkServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.node.get_closest_marker("fresh_ranks"):
        monkeypatch.setattr(child, "start", fork_server.start_fresh)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps tests out of a world of the launcher that started pytest."""
    for name in list(os.environ):
        if name in LAUNCHER_VARIABLES or name.startswith(LAUNCHER_PREFIXES):
            monkeypatch.delenv(name)


@pytest.fixture
def world_of_one() -> Iterator[pc.Group]:
    group = pc.init(timeout=30)
    yield group
    pc.shutdown()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows why tests failed that then passed, and names them for scripts/test.

    It lists them at its end.
    """
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed at first: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
    if named := os.environ.get("PYCOLLECTIVE_FLAKES"):
        failed = {report.nodeid for report in terminalreporter.stats.get("failed", [])}
        failed |= {report.nodeid for report in terminalreporter.stats.get("error", [])}
        with open(named, "a") as file:
            for test in sorted(
                {report.nodeid for report in terminalreporter.stats.get("rerun", [])} - failed
            ):
                file.write(f"{test}\n")
