"""The limits of this host and shell: descriptors, shared memory, cores, sockets, clock, GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pycollective.tools.doctor.check_result import CheckResult, ok, warn

MIB = 1 << 20
LEAST_SHARED = 64 * MIB
LEAST_FILES = 1024
SOCKETS = {
    "rmem_max": 16 * MIB,
    "wmem_max": 16 * MIB,
    "somaxconn": 4096,
}  # recommended values for fast networks and large jobs
QUICK_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")


def open_files(limits: tuple[int, int], size: int, env: Mapping[str, str]) -> CheckResult:
    """Checks the limit of open files.

    A rank needs a control connection and data connections to each other rank, and the program has
    files of its own.
    """
    soft, hard = limits
    tcp_sockets = env.get("PYCOLLECTIVE_TCP_SOCKETS", "")
    needed = max(LEAST_FILES, (3 + int(tcp_sockets if tcp_sockets.isdecimal() else 1)) * size)
    if soft < 0 or soft >= needed:
        return ok("open files", f"ulimit -n is {_amount(soft)}")
    mend = f"ulimit -n {needed}"
    if 0 <= hard < needed:
        mend = f"raise the hard limit ({hard}) in /etc/security/limits.conf or by LimitNOFILE=, then {mend}"
    return warn("open files", f"ulimit -n is {soft}; {size} ranks may need {needed}", mend)


def locked_memory(limit: int) -> CheckResult:
    """Returns the limit of locked memory, which also limits pinned memory."""
    return ok("locked memory", f"ulimit -l is {_amount(limit if limit < 0 else limit // 1024)}")


def shared_memory(found: tuple[int, int] | None) -> CheckResult:
    """Checks the size of /dev/shm."""
    mend = (
        "mount -o remount,size=1G /dev/shm; docker --shm-size=1g; Kubernetes: an emptyDir with medium: Memory"
    )
    if found is None:
        return warn("shared memory", "there is no /dev/shm", mend)
    size, free = found
    text = f"/dev/shm has {size // MIB} MiB, {free // MIB} MiB of them free"
    return warn("shared memory", text, mend) if free < LEAST_SHARED else ok("shared memory", text)


def cores(mine: frozenset[int], local_size: int, root: Path) -> CheckResult:
    """Checks the number of cores: a rank that polls keeps another rank on its core from running."""
    online = _number_of_cores(root) or len(mine)
    text = f"{len(mine)} of {online} usable ({ranges(mine)})"
    if local_size > 1:
        text += f", {local_size} ranks here"
    # The launcher may have bound each rank to a core of its own. The affinity mask of this rank
    # then lacks the other ranks' cores.
    if local_size > online:
        remedy = f"start at most {online} ranks on this host: those that share a core wait for each other"
        return warn("cores", text, remedy)
    return ok("cores", text)


def threads(env: Mapping[str, str], mine: frozenset[int], local_size: int) -> CheckResult:
    """Checks the number of threads that NumPy and torch start in each rank."""
    text = env.get("OMP_NUM_THREADS", "")
    if not text.isdecimal():
        return ok("threads", "OMP_NUM_THREADS is not set")
    if int(text) > 1 and int(text) * local_size > len(mine):
        found = f"OMP_NUM_THREADS={text} in each of {local_size} ranks, on {len(mine)} cores"
        return warn("threads", found, f"OMP_NUM_THREADS={max(1, len(mine) // local_size)}")
    return ok("threads", f"OMP_NUM_THREADS={text}")


def socket_limits(root: Path) -> CheckResult:
    """Returns only hints: the kernel's own values suit most systems."""
    found, small = [], []
    for name, wanted in SOCKETS.items():
        value = _text(root / "proc/sys/net/core" / name)
        found.append(f"{name} {value or 'unknown'}")
        if value.isdecimal() and int(value) < wanted:
            small.append(f"net.core.{name}={wanted}")
    hint = f"for networks above 10 Gbit/s or many ranks: sysctl -w {' '.join(small)}" if small else ""
    return ok("sockets", ", ".join(found), hint)


def clock(root: Path) -> CheckResult:
    """Checks the clock source, because every call reads the clock several times."""
    name = _text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    if name in ("hpet", "acpi_pm", "jiffies", "refined-jiffies"):
        remedy = (
            f"the kernel gave up a quicker one: see `dmesg | grep -i clocksource`; best is {QUICK_CLOCKS[0]}"
        )
        return warn("clock", f"{name}: reading the time takes a microsecond or more", remedy)
    return ok("clock", name)


def gpus(commands: Mapping[str, str]) -> CheckResult:
    """Returns what nvidia-smi prints."""
    answer = commands.get("nvidia-smi")
    if answer is None:
        return ok("GPU", "no GPU (there is no nvidia-smi)")
    if answer.startswith("fails: "):
        remedy = "load the driver (`modprobe nvidia`, `dmesg | grep -i nvrm`), or expect no GPU"
        return warn("GPU", f"nvidia-smi {answer}", remedy)
    return ok("GPU", answer)


def ranges(numbers: frozenset[int]) -> str:
    """Returns text such as `0-3,8`, as in taskset."""
    words: list[list[int]] = []
    for number in sorted(numbers):
        if words and number == words[-1][-1] + 1:
            words[-1][1:] = [number]
        else:
            words.append([number])
    return ",".join("-".join(map(str, word)) for word in words)


def _number_of_cores(root: Path) -> int:
    text = _text(root / "sys/devices/system/cpu/online")
    try:
        ends = [[int(number) for number in word.split("-")] for word in text.split(",")]
    except ValueError:
        return 0
    return sum(word[-1] - word[0] + 1 for word in ends)


def _amount(limit: int) -> str:
    return "unlimited" if limit < 0 else str(limit)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
