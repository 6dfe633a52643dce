"""What the output of a part means: checks, read from what its program prints.

The programs are GoogleTest, tests/gpu/card/on_gpu.py and the benchmark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .check import FAILED, FIGURE, PASSED, SKIPPED, Check
from .ended import Ended

CANNOT_HERE = 77  # the benchmark's exit code
MOST_ADDED_US = {"out_of_place": 1.0, "in_place": 2.0}  # to NCCL's own call of the smallest size
SLOW_RUNS = 1  # of five
SHARE_OF_COPY = 0.6

Rows = Sequence[dict[str, Any]]
Read = Callable[[Ended], list[Check]]
Judge = Callable[[str, str, Rows], list[Check]]


def one_line(text: str, most: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def to_its_end(part: str, checks: Sequence[Check], ended: Ended) -> list[Check]:
    """Adds a failed check if the program crashed or hung after all its checks had been made."""
    if ended.code == 0 or any(each.outcome == FAILED for each in checks):
        return list(checks)
    return [*checks, Check(part, "to its end", FAILED, one_line(ended.why()))]


# ---- GoogleTest

END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+).* \(\d+ ms\)$")
OUTCOMES = {"OK": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}


def listed_tests(text: str) -> list[str]:
    """Returns the names that --gtest_list_tests prints."""
    names, suite = [], ""
    for line in text.splitlines():
        word = line.partition("#")[0].rstrip()
        if word.startswith("  ") and suite:
            names.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    return names


def read_gtest(part: str, expected: Sequence[str], ended: Ended) -> list[Check]:
    checks: dict[str, Check] = {}
    words: list[str] = []
    for line in ended.text.splitlines():
        if line.startswith("[ RUN "):
            words = []
        elif found := END.match(line):
            how, name = found.groups()
            why = [word for word in words if not re.match(r"\S+:\d+: (Failure|Skipped)$", word)]
            said = "" if how == "OK" else one_line(" ".join(why))
            checks[name] = Check(part, name, OUTCOMES[how], said)
            words = []
        else:
            words.append(line)
    for name in expected:
        checks.setdefault(name, Check(part, name, FAILED, f"not reached: {ended.why()}"))
    if not checks:
        return [Check(part, "all of it", FAILED, ended.why())]
    return to_its_end(part, list(checks.values()), ended)


# ---- tests/gpu/card/on_gpu.py

LINE = re.compile(r"(passed|failed|not made) +([^:]+): (.*)$")


def read_on_gpu(part: str, expected: Sequence[str], ended: Ended) -> list[Check]:
    outcomes = {"passed": PASSED, "failed": FAILED, "not made": SKIPPED}
    checks = {
        name: Check(part, name, outcomes[how], one_line(said))
        for how, name, said in (found.groups() for found in map(LINE.match, ended.text.splitlines()) if found)
    }
    why_none = re.search(r"^not made: (.*)", ended.text, re.M)
    for name in expected:
        if why_none:
            checks.setdefault(name, Check(part, name, SKIPPED, one_line(why_none.group(1))))
        checks.setdefault(name, Check(part, name, FAILED, f"not reached: {ended.why()}"))
    if not checks:
        return [Check(part, "all of it", FAILED, ended.why())]
    return to_its_end(part, list(checks.values()), ended)


# ---- the benchmark


def read_bench(part: str, name: str, judge: Judge, ended: Ended) -> list[Check]:
    rows = [json.loads(line) for line in ended.text.splitlines() if re.match(r"{.*}$", line)]
    if ended.code == CANNOT_HERE and not rows:
        return [Check(part, name, SKIPPED, one_line(ended.text.strip().removeprefix("pycollective-bench: ")))]
    if ended.code != 0 or not rows:  # what it measured until then counts
        measured = judge(part, name, rows) if rows else []
        return [*measured, Check(part, f"{name}: to its end", FAILED, one_line(ended.why()))]
    return judge(part, name, rows)


def halves(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [half for row in rows for half in (row["out_of_place"], row["in_place"]) if half is not None]


def size_text(nbytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def way_of(rows: Rows) -> str:
    ways = sorted({str(row["way"]) for row in rows})
    why = next((row["why_not_nccl"] for row in rows if row["why_not_nccl"]), None)
    return "by " + " and ".join(ways) + (f" ({one_line(why, 90)})" if why else "")


def all_right(part: str, name: str, rows: Rows) -> list[Check]:
    """Checks ours, and NCCL's own if they are measured too."""
    ours = [half["nwrong"] for half in halves(rows)]
    raw = [half["raw_nwrong"] for half in halves(rows) if "raw_time" in half]
    said = f"{len({row['collective'] for row in rows})} collectives, {way_of(rows)}"
    for counts, owner in ((ours, ""), (raw, " of NCCL's own calls")):
        if wrong := sum(each or 0 for each in counts):
            return [Check(part, name, FAILED, f"{wrong} wrong elements{owner}; {said}")]
    if None in [*ours, *raw]:
        return [Check(part, name, FAILED, "not verified")]
    return [Check(part, name, PASSED, said)]


def sides(half: dict[str, Any], key: str) -> str:
    return f"{half[key]:.2f} us, NCCL's own {half['raw_' + key]:.2f}"


def figures_beside_nccl(part: str, name: str, rows: Rows) -> list[Check]:
    """Makes one figure per collective and size.

    It has the time until the calls have ended, and how long single calls occupy the host.
    """
    checks = []
    for row in rows:
        said = []
        for place in ("out_of_place", "in_place"):
            if (half := row[place]) is None:
                continue
            said.append(f"{place.replace('_', ' ')} {sides(half, 'p50')}, p99 {sides(half, 'p99')}")
            said.append(f"host {sides(half, 'host_p50')}, p99 {sides(half, 'host_p99')}")
            if row["size"] >= 1 << 20:
                said.append(f"busbw {half['bus_bw']:.1f} GB/s, algbw {half['alg_bw']:.1f}")
        what = f"{row['collective']} of {size_text(row['size'])}"
        checks.append(Check(part, f"{name}: {what}", FIGURE, ", ".join(said)))
    return [*all_right(part, f"{name}: results", rows), *checks]


def added_to_nccl(part: str, name: str, rows: Rows) -> list[Check]:
    """Compares the medians of several runs of one small call, where the call itself dominates.

    A median ignores a slow run.
    """
    checks = all_right(part, f"{name}: results", rows)
    for place, most in MOST_ADDED_US.items():
        pairs = [(row[place]["p50"], row[place]["raw_p50"]) for row in rows if row[place] is not None]
        added = [ours - raw for ours, raw in pairs]
        slow = sum(each > most for each in added)
        runs = ", ".join(f"{each:+.2f}" for each in added)
        nccl = ", ".join(f"{raw:.2f}" for _, raw in pairs)
        said = f"{runs} us to NCCL's own {nccl}, at most: {most:+.1f} in all runs but {SLOW_RUNS}"
        outcome = PASSED if slow <= SLOW_RUNS < len(pairs) else FAILED
        checks.append(Check(part, f"{name}: {place.replace('_', ' ')}", outcome, said))
    return checks


def bandwidth(part: str, name: str, rows: Rows) -> list[Check]:
    """Compares the largest row with what the memory of this GPU allows.

    Two ranks that share a GPU read both arrays and write both results: 4 bytes for each byte of an
    array, where the driver's copy moves 2.
    """
    row = max(rows, key=lambda each: each["size"])
    best = max(half["bus_bw"] for half in halves([row]))
    bound = row["size"] / row["copy_time"] / 1e3 / 2
    goal = SHARE_OF_COPY * bound
    said = f"{best:.1f} GB/s, {way_of(rows)}; at least {goal:.0f}, 60 % of the {bound:.0f} that the driver's copy shows"
    right = all_right(part, f"{name}: results", rows)
    if row["way"] == "staged":  # over the host's bus, which does not measure the GPU's memory
        return [*right, Check(part, f"{name}: busbw", FIGURE, f"through the host; {said}")]
    return [*right, Check(part, f"{name}: busbw", PASSED if best >= goal else FAILED, said)]


# ---- anything else


def read_code(part: str, name: str, ended: Ended) -> list[Check]:
    if ended.code == 0:
        return [Check(part, name, PASSED, f"{ended.seconds:.0f} s")]
    return [Check(part, name, FAILED, one_line(ended.why()))]


def read_sanitizer(part: str, name: str, ended: Ended) -> list[Check]:
    """Requires its summary: a test that was skipped has run no kernel."""
    summary = re.search(r"ERROR SUMMARY: (\d+) errors?", ended.text)
    if ended.code is None or summary is None:
        return [Check(part, name, FAILED, one_line(ended.why()))]
    if int(summary.group(1)) or ended.code != 0:
        return [Check(part, name, FAILED, f"{summary.group(0)}; {one_line(ended.why(), 120)}")]
    if re.search(r"\[       OK \]", ended.text):
        return [Check(part, name, PASSED, summary.group(0))]
    skipped = re.search(r"\[  SKIPPED \]", ended.text)
    return [
        Check(
            part,
            name,
            SKIPPED if skipped else FAILED,
            f"its tests were {'skipped' if skipped else 'not run'}",
        )
    ]
