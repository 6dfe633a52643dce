"""Hosts made of network namespaces: each has one veth to a common switch, limited by tbf.

pycollective sees separate hosts, because each has a network namespace and a host name of its own,
and no path to the others except through the switch. Needs root, iproute2 and a kernel with veth,
bridge and tbf; `missing()` reports what is missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

NETWORKS = {4: ("10.78.0.{}", 24), 6: ("fd00:78::{}", 64)}
OURS = re.compile(r"(pchosts-\d+-\d+)-\S+")  # matches the name of a world, and a suffix
# folder of a file for each world, which is locked while the process that made the world runs
LOCKS = Path(tempfile.gettempdir())
PATIENCE_S = 20
# Runs a command with a host name of its own, in a namespace that ends with the process.
NAMED = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'
_worlds = itertools.count()


class Unavailable(Exception):
    """Raised if such hosts cannot be made here."""


@dataclass(frozen=True)
class Host:
    """One host. `switch` and `port` name the other end of its only link."""

    name: str
    address: str
    switch: str
    port: str

    def command(self, words: Sequence[str]) -> list[str]:
        """Returns a command that runs `words` on the host, without an additional process."""
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", NAMED, self.name, *words]

    def ip(self, *commands: str) -> None:
        """Runs `ip` on the host, once for each command."""
        sh(*(f"ip -n {self.name} {command}" for command in commands))

    def unplug(self) -> None:
        """Takes down the link at the switch: data in flight are lost, without any notification."""
        sh(f"ip -n {self.switch} link set {self.port} down")


def sh(*commands: str) -> None:
    """Runs the commands one after the other; none of them needs a shell."""
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode != 0:
            raise Unavailable(f"{command}: {done.stderr.strip() or done.returncode}")


def missing(family: int = 4) -> str | None:
    """Returns why such hosts cannot be made here, or None."""
    for name in ("ip", "tc", "unshare"):
        if shutil.which(name) is None:
            return f"{name} is not installed (on Debian: iproute2, util-linux)"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    try:
        with hosts(1, rate="1gbit", family=family) as made:
            entered = subprocess.run(
                made[0].command(["true"]), capture_output=True, text=True, timeout=PATIENCE_S
            )
    except (Unavailable, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if entered.returncode == 0 else entered.stderr.strip() or "a host cannot be entered"


@contextlib.contextmanager
def hosts(count: int, *, rate: str = "none", congestion: str = "", family: int = 4) -> Iterator[list[Host]]:
    """Makes hosts that reach each other by either IPv4 or IPv6.

    At the end they are removed with all processes in them.

    Parameters:
        count: the number of hosts.
        rate: of the outgoing link of each host, in tbf's notation, or "none".
        congestion: net.ipv4.tcp_congestion_control of all hosts.
        family: 4 or 6.
    """
    remove_those_of_the_dead()
    world = f"pchosts-{os.getpid()}-{next(_worlds)}"
    lock = locked(world)
    assert lock is not None, f"another {world} is alive"
    network, prefix = NETWORKS[family]
    made = [
        Host(f"{world}-{number}", network.format(number + 1), f"{world}-switch", f"port{number}")
        for number in range(count)
    ]
    try:
        sh(f"ip netns add {world}-switch", f"ip -n {world}-switch link add bridge type bridge")
        sh(f"ip -n {world}-switch link set bridge up")
        for host in made:
            plug_in(host, prefix)
            if congestion:
                sh(f"ip netns exec {host.name} sysctl -qw net.ipv4.tcp_congestion_control={congestion}")
            if rate != "none":
                sh(f"tc -n {host.name} qdisc add dev eth0 root tbf rate {rate} burst 256kb limit 4mb")
        yield made
    finally:
        for name in (*(host.name for host in made), f"{world}-switch"):
            remove(name)
        (LOCKS / world).unlink()
        os.close(lock)


def plug_in(host: Host, prefix: int) -> None:
    """Makes the host's namespace and its link to the switch."""
    sh(f"ip netns add {host.name}")
    sh(f"ip link add eth0 netns {host.name} type veth peer name {host.port} netns {host.switch}")
    sh(f"ip -n {host.switch} link set {host.port} master bridge up")
    # without duplicate address detection the address is usable at once
    sixth = " nodad" if ":" in host.address else ""
    host.ip("link set lo up", f"addr add {host.address}/{prefix} dev eth0{sixth}", "link set eth0 up")


def remove(name: str) -> None:
    """Removes the namespace of that name, and all processes in it."""
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, timeout=PATIENCE_S)
    for pid in listed.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=PATIENCE_S)


def locked(world: str) -> int | None:
    """Returns a locked descriptor of this world's file, or None if another process holds it."""
    lock = os.open(LOCKS / world, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def remove_those_of_the_dead() -> None:
    """Removes the namespaces that killed processes have left behind."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=PATIENCE_S)
    worlds: dict[str, list[str]] = {}
    for found in map(OURS.match, listed.stdout.splitlines()):
        if found:
            worlds.setdefault(found[1], []).append(found[0])
    for world, names in worlds.items():
        if (lock := locked(world)) is not None:
            for name in names:
                remove(name)
            (LOCKS / world).unlink()
            os.close(lock)
