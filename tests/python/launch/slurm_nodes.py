"""A Slurm of two nodes on this host, as root: its daemons are children of the tests.

They end with the tests.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from launchers import free_port

READY_S = 60.0


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[dict[str, str]]:
    """Yields the environment by which srun finds them."""
    folder.chmod(0o755)
    for name in ("state", "spool-n0", "spool-n1"):
        (folder / name).mkdir()
    conf = write_configuration(folder)
    env = {**os.environ, "SLURM_CONF": str(conf)}
    with contextlib.ExitStack() as daemons:
        key, munge = folder / "munge.key", folder / "munge.socket"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = [f"--{name}={folder / name}" for name in ("pid-file", "log-file", "seed-file")]
        words = ["munged", "--foreground", "--force", f"--socket={munge}", f"--key-file={key}", *files]
        daemons.enter_context(daemon(words, env, folder))
        wait_until(["munge", "-n", "-S", str(munge)], env, "MUNGE:")
        daemons.enter_context(daemon(["slurmctld", "-D", "-c"], env, folder))
        # The nodes' names must resolve inside tasks, and nowhere else.
        (folder / "hosts").write_text(Path("/etc/hosts").read_text() + "127.0.0.1 n0 n1\n")
        for node in ("n0", "n1"):
            script = f"mount --bind {folder}/hosts /etc/hosts && exec slurmd -D -N {node}"
            daemons.enter_context(daemon(["unshare", "-m", "sh", "-c", script], env, folder))
        wait_until(["sinfo", "-h", "-o", "%D %T"], env, "2 idle")
        yield {"SLURM_CONF": str(conf)}


def write_configuration(folder: Path) -> Path:
    host = socket.gethostname().split(".")[0]
    conf = folder / "slurm.conf"
    conf.write_text(
        f"""ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={free_port()}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdParameters=config_overrides
MpiDefault=none
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=4 RealMemory=2000 State=UNKNOWN
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=4 RealMemory=2000 State=UNKNOWN
PartitionName=debug Nodes=n[0-1] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
    )
    return conf


@contextlib.contextmanager
def daemon(words: Sequence[str], env: dict[str, str], folder: Path) -> Iterator[None]:
    with (folder / "daemons.log").open("ab") as log:
        process = subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(words: Sequence[str], env: dict[str, str], said: str) -> None:
    """Polls, because these daemons do not report when they are ready."""
    end = time.monotonic() + READY_S
    while True:
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=READY_S)
        if said in done.stdout:
            return
        assert time.monotonic() < end, f"{words}: {done.stdout}{done.stderr}"
        threading.Event().wait(0.05)
