"""Measures for every number of ranks, reports the findings, and writes the profile."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pycollective import _core, testing
from pycollective._version import __version__
from pycollective.launching.environment import usable_cores
from pycollective.tools.tune.decide import FEWEST_ROUNDS, Finding, decide
from pycollective.tools.tune.experiments import Experiment, experiments, tcp_rows, together
from pycollective.tools.tune.ranks import Measured, measure

STARTING_S = 60.0  # time to start ranks on a busy machine, in addition to the time of their measurements
BUSY = 0.5  # the machine counts as busy if other programs use this share of the cores
CHECKING = 0.1  # share of the time for measuring separately found settings together
SLOWEST = 20  # The time limit is this multiple of the requested time, because a round cannot be interrupted.
# Settings of the user and an existing profile must not affect the measurement.
PLAIN = {"PYCOLLECTIVE_PROFILE": "off", "PYCOLLECTIVE_TUNE": "", "PYCOLLECTIVE_TRANSPORT": "",
         "PYCOLLECTIVE_CHECK": "", "PYCOLLECTIVE_SECURITY": ""}  # fmt: skip
Setting = tuple[int, str, str]  # ranks, name, value
HEADER = f"{'ranks':>5}  {'setting':<24}{'default':>12}{'found':>12}{'gain':>9}{'spread':>9}{'rounds':>8}"


@dataclass(frozen=True)
class Found:
    """The findings for one number of ranks."""

    ranks: int
    findings: list[Finding]
    left_out: list[str]  # names of experiments that could not be measured, with the reasons


def rank_counts() -> list[int]:
    """Returns the numbers of ranks to tune for: two, four, and one rank for each core."""
    return sorted({2, 4, max(2, min(usable_cores(), 64))})


def run(
    *, seconds: float, output: str | None = None, dry_run: bool = False, ranks: Sequence[int] | None = None
) -> int:
    """Runs the command. Returns 0, or 2 if no folder for a profile is known."""
    path = output or _core._usual_profile_path()
    if not path and not dry_run:
        print("pycollective tune: there is neither XDG_CONFIG_HOME nor HOME: say where with --output")
        return 2
    counts = list(ranks or rank_counts())
    lines = [f"{name} = {value}" for name, value in _core._machine_facts()]
    print("This machine: " + ", ".join(lines))
    if busy := busy_text(os.getloadavg()[0], usable_cores()):
        print(busy)
    print(HEADER, flush=True)
    found = []
    for count in counts:
        found.append(conduct(count, seconds / len(counts)))
        print("\n".join(table_of(found[-1])), flush=True)
    settings = [each for one in found for each in settings_of(one)]
    text = _core._profile_text(settings, comment_of(found, seconds, busy))
    print(summary(found, settings))
    if dry_run:
        print("\n" + text, end="")
        return 0
    write(Path(path), text)
    print(f"Written: {path}. It counts from the next init() on; PYCOLLECTIVE_PROFILE=off goes without it.")
    return 0


def conduct(ranks: int, seconds: float) -> Found:
    """Runs all experiments with this number of ranks."""
    plans = experiments(ranks)
    findings, left_out = [], []
    for plan, result in zip(plans, measured(ranks, plans, (1 - CHECKING) * seconds), strict=True):
        if result.passes:
            findings.append(decide(plan, result.passes))
        else:
            left_out.append(f"{plan.name}: {result.why_not}")
    return checked(Found(ranks, findings, left_out), CHECKING * seconds)


def measured(ranks: int, plans: list[Experiment], seconds: float) -> list[Measured]:
    """Runs experiments in new ranks, which do not use the environment's settings."""
    limit = STARTING_S + SLOWEST * seconds
    return testing.run(measure, ranks, plans, seconds, timeout_s=limit, env=PLAIN)[0]


def checked(found: Found, seconds: float) -> Found:
    """Measures separately found limits in combination. Without a gain, keeps only the best one."""
    limits = [each for each in found.findings if each.is_better and not each.name.startswith("tcp ")]
    if len(limits) < 2:
        return found
    plan = together(
        found.ranks, [(name, value) for _, name, value in settings_of(replace(found, findings=limits))]
    )
    whole = decide(plan, measured(found.ranks, [plan], seconds)[0].passes)
    if whole.gain > 0:
        return replace(found, findings=[*found.findings, whole])
    best = max(limits, key=lambda each: each.gain)
    kept = [replace(each, best=each.default) if each in limits and each is not best else each
            for each in found.findings]  # fmt: skip
    return replace(found, findings=[*kept, whole])


def percent(gain: float) -> str:
    """Formats a gain, which is the logarithm of a ratio."""
    return "unknown" if math.isinf(gain) else f"{math.expm1(gain) * 100:.1f} %"


def table_of(found: Found) -> list[str]:
    """Returns the table's rows. A default that stays has the gain of the best other value."""
    lines = [
        f"{found.ranks:>5}  {each.name:<24}{each.default:>12}{each.best if each.is_better else '-':>12}"
        f"{percent(each.gain):>9}{percent(each.spread):>9}{each.rounds:>8}"
        for each in found.findings
    ]
    return lines + [f"{found.ranks:>5}  not measured: {why}" for why in found.left_out]


def settings_of(found: Found) -> list[Setting]:
    """Returns the settings that are better than the defaults, in the form of a profile."""
    settings: list[Setting] = []
    tcp: dict[str, str] = {}
    for each in found.findings:
        if not each.is_better or each.default == "defaults":
            continue
        if each.name.startswith("tcp "):
            tcp[each.name.removeprefix("tcp ")] = each.best
        else:
            names, values = each.name.split(), each.best.split()
            settings += [(found.ranks, name, value) for name, value in zip(names, values, strict=True)]
    if tcp:
        rows = tcp_rows(found.ranks, tcp.get("ring"), tcp.get("chunks"))
        settings.append((found.ranks, "tcp", rows))
    return settings


def summary(found: Sequence[Found], settings: Sequence[Setting]) -> str:
    """Returns a summary in one line."""
    findings = [each for one in found for each in one.findings]
    short = sum(each.rounds < FEWEST_ROUNDS for each in findings)
    if short:
        return f"{short} of {len(findings)} had not the time for {FEWEST_ROUNDS} rounds and stay: see --time."
    if not settings:
        return "The defaults are good here: nothing was better by more than 5 %, and by more than its spread."
    return f"{len(settings)} settings are better than the defaults here."


def busy_text(load: float, cores: int) -> str:
    """Returns a warning if other programs loaded the machine in the last minute, or ""."""
    if load < BUSY * cores:
        return ""
    return f"Other programs kept this machine busy (load {load:.1f}, {cores} cores): measure again when they are done."


def comment_of(found: Sequence[Found], seconds: float, busy: str) -> str:
    """Returns the profile's comment, which describes how the profile was made."""
    now = datetime.datetime.now(datetime.timezone.utc)
    head = [
        f"Made by `pycollective tune` of pycollective {__version__}, {now:%Y-%m-%d %H:%M} UTC, in {seconds:g} s.",
        "What it means: docs/tune.md. On a machine that differs from [machine] all of it is refused.",
        "Measured (a gain is that of the best value besides the default; - : the default stays):",
        HEADER,
    ]
    if busy:
        head.insert(1, busy)
    return "\n".join([*head, *(line for each in found for line in table_of(each))])


def write(path: Path, text: str) -> None:
    """Writes the file atomically: a concurrent reader finds the old or the new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _core._read_profile(name)  # raises if the profile cannot be read; the old profile is then kept
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
