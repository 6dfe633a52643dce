"""The network interfaces, and those on which rank 0 would listen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pycollective.bootstrap.addresses import VARIABLE, Interfaces, candidates
from pycollective.bootstrap.interfaces import RUNNING, UP
from pycollective.errors import InvalidArgument
from pycollective.tools.doctor.check_result import CheckResult, fail, ok


def listing(found: Interfaces) -> list[CheckResult]:
    """Returns a line for every interface with an address."""
    lines = []
    for name in dict.fromkeys(name for name, _, _ in found):
        words = [address for each, address, _ in found if each == name]
        flags = next(flags for each, _, flags in found if each == name)
        state = [] if flags & UP and flags & RUNNING else ["(down)"]
        lines.append(ok(f"interface {name}", " ".join([*words, *state])))
    return lines


def choice(
    found: Interfaces, routes: Sequence[str], env: Mapping[str, str], *, one_host: bool
) -> CheckResult:
    """Returns the addresses at which rank 0 would listen on this host, and why it chooses them."""
    try:
        chosen = candidates(one_host=one_host, env=env, found=found, routes=routes)
    except InvalidArgument as error:
        remedy = f"bring an interface up (`ip link`, `ip addr`), or name one that is: {VARIABLE}"
        return fail("rank 0 listens on", str(error), remedy)
    if env.get(VARIABLE):
        reason = f"{VARIABLE}={env[VARIABLE]}"
    elif one_host:
        reason = "all ranks are on this host"
    else:
        reason = f"{routes[0]} has the default route" if routes else "there is no default route"
    return ok("rank 0 listens on", f"{', '.join(chosen)}: {reason}")
