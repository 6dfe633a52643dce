"""`pycollective doctor`: what this host has, what is missing, and the remedies."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict

from pycollective._version import __version__
from pycollective.tools.doctor import (
    container,
    interfaces,
    keys,
    launching,
    machine,
    names,
    packages,
    variables,
)
from pycollective.tools.doctor.check_result import CheckResult, fail, ok
from pycollective.tools.doctor.facts import Facts, collect

__all__ = ["CHECKS", "Facts", "CheckResult", "check", "collect", "doctor"]

OLDEST_KERNEL = (5, 3)  # the first with pidfd_open


def _software(facts: Facts) -> list[CheckResult]:
    wheel = facts.wheel or "not installed as a package"
    python = ".".join(map(str, facts.python))
    return [
        ok("pycollective", f"{__version__} ({wheel}), reductions for {facts.vectors or 'unknown'}"),
        ok("python", python),
        *packages.libraries(dict(facts.packages)),
    ]


def _launching(facts: Facts) -> list[CheckResult]:
    return [
        launching.launcher(facts.placement, facts.problem, facts.env),
        *launching.launchers(facts.commands, facts.packages),
        *variables.ours(facts.env, facts.known_variables),
        *keys.keys(facts.env),
    ]


def _network(facts: Facts) -> list[CheckResult]:
    return [
        names.host_name(facts.host, facts.host_addresses, one_host=facts.one_host),
        *interfaces.listing(facts.interfaces),
        interfaces.choice(facts.interfaces, facts.routes, facts.env, one_host=facts.one_host),
        machine.socket_limits(facts.root),
    ]


def _machine(facts: Facts) -> list[CheckResult]:
    return [
        machine.cores(facts.cores, facts.local_size, facts.root),
        machine.threads(facts.env, facts.cores, facts.local_size),
        container.limits(facts.root, facts.env, len(facts.cores)),
        machine.open_files(facts.open_files, facts.size, facts.env),
        machine.locked_memory(facts.locked_bytes),
        machine.shared_memory(facts.shared_memory),
        machine.clock(facts.root),
        _kernel(facts),
        machine.gpus(facts.commands),
    ]


def _kernel(facts: Facts) -> CheckResult:
    numbers = [word for word in facts.kernel.replace("-", ".").split(".") if word.isdecimal()]
    if tuple(map(int, numbers[:2])) < OLDEST_KERNEL:
        wanted = ".".join(map(str, OLDEST_KERNEL))
        return fail(
            "kernel", facts.kernel, f"Linux {wanted} or later: `pycollective run` watches ranks by pidfd"
        )
    return ok("kernel", facts.kernel)


CHECKS: tuple[Callable[[Facts], list[CheckResult]], ...] = (_software, _launching, _network, _machine)


def check(facts: Facts) -> list[CheckResult]:
    """Returns the results of all checks."""
    return [line for each in CHECKS for line in each(facts)]


def _gpus() -> list[CheckResult]:
    from pycollective import _core
    from pycollective.runtime import availability
    from pycollective.tools.doctor import gpu

    return [
        *gpu.driver(_core._driver_facts()),
        gpu.kernels(_core._kernel_targets()),
        *gpu.nccl(_core._nccl_facts(availability.wheel_folders())),
    ]


def doctor(*, as_json: bool = False, world: bool | None = None, gpus: bool = False) -> int:
    """Prints the results of all checks. Returns 1 if any check fails.

    With `gpus` the driver and NCCL are opened and queried, instead of running nvidia-smi only. With
    `world`, and by default if a launcher started several ranks, the ranks join a world. Rank 0 then
    prints its own lines, and the WARN and FAIL lines of the other ranks. A rank that cannot join
    the world prints its own lines; if it is not rank 0, only WARN and FAIL.
    """
    facts = collect()
    lines = check(facts) + (_gpus() if gpus else [])
    rank = facts.placement.rank if facts.placement else 0
    if facts.placement is not None and (facts.size > 1 if world is None else world):
        from pycollective.tools.doctor.world import visit

        lines = visit(lines, rank)
    if as_json and rank == 0:
        text = json.dumps([asdict(line) for line in lines], indent=1)
    else:
        text = "\n".join(line.text() for line in lines)
    if text:
        print(text, file=sys.stdout if rank == 0 else sys.stderr, flush=True)
    return 1 if any(line.status == "FAIL" for line in lines) else 0
