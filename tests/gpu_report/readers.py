"""What the output of a part means: checks, of what GoogleTest, tests/on_gpu.py and the benchmark print."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .check import FAILED, FIGURE, PASSED, SKIPPED, Check
from .ended import Ended

CANNOT_HERE = 77  # the benchmark's exit code
MOST_ADDED_US = 2.0
SHARE_OF_MEMORY, MEMORY_GBPS = (
    0.6,
    1075.0,
)  # of the H200, as two ranks of one GPU could use it (benchmarks/gpu.md)

Rows = Sequence[dict[str, Any]]
Read = Callable[[Ended], list[Check]]
Judge = Callable[[str, str, Rows], list[Check]]


def one_line(text: str, most: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def to_its_end(part: str, checks: Sequence[Check], ended: Ended) -> list[Check]:
    """And what no check says: that it crashed, or hung, when all of them had been made."""
    if ended.code == 0 or any(each.outcome == FAILED for each in checks):
        return list(checks)
    return [*checks, Check(part, "to its end", FAILED, one_line(ended.why()))]


# ---- GoogleTest

END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+).* \(\d+ ms\)$")
OUTCOMES = {"OK": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}


def listed_tests(text: str) -> list[str]:
    """The names that --gtest_list_tests prints."""
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


# ---- tests/on_gpu.py

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
    if ended.code != 0 or not rows:  # what it has measured until then counts
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
    """Ours, and NCCL's own where they are measured too."""
    ours = [half["nwrong"] for half in halves(rows)]
    raw = [half["raw_nwrong"] for half in halves(rows) if "raw_time" in half]
    said = f"{len({row['collective'] for row in rows})} collectives, {way_of(rows)}"
    for counts, whose in ((ours, ""), (raw, " of NCCL's own calls")):
        if wrong := sum(each or 0 for each in counts):
            return [Check(part, name, FAILED, f"{wrong} wrong elements{whose}; {said}")]
    if None in [*ours, *raw]:
        return [Check(part, name, FAILED, "not verified")]
    return [Check(part, name, PASSED, said)]


def beside_nccl(part: str, name: str, rows: Rows) -> list[Check]:
    """One check per size, by medians: no slow turn moves them. The smallest has the bar: there the call is all."""
    checks = []
    for row in rows:
        said, added = [], []
        for place in ("out_of_place", "in_place"):
            if (half := row[place]) is None:
                continue
            ours, raw = half["p50"], half["raw_p50"]
            added.append(ours - raw)
            words = place.replace("_", " ")
            said.append(f"{words} {ours:.2f} us by the median, NCCL's own {raw:.2f}: {ours - raw:+.2f}")
            said.append(f"until queued {half['host_time'] - half['raw_host_time']:+.2f} on average")
            if row["size"] >= 1 << 20:
                said.append(f"busbw {half['bus_bw']:.1f} GB/s, algbw {half['alg_bw']:.1f}")
        if row is rows[0]:
            outcome = PASSED if max(added) <= MOST_ADDED_US else FAILED
            said.append(f"bar: {MOST_ADDED_US:+.0f} us")
        else:
            outcome = FIGURE
        checks.append(Check(part, f"{name}: {size_text(row['size'])}", outcome, ", ".join(said)))
    return [*all_right(part, f"{name}: results", rows), *checks]


def figures_beside_nccl(part: str, name: str, rows: Rows) -> list[Check]:
    """Without a bar."""
    right, *rest = beside_nccl(part, name, rows)
    figures = [Check(each.part, each.name, FIGURE, each.said.partition(", bar:")[0]) for each in rest]
    return [right, *figures]


def bandwidth(part: str, name: str, rows: Rows) -> list[Check]:
    """Of the largest row, beside what the GPU's memory allows."""
    row = max(rows, key=lambda each: each["size"])
    best = max(half["bus_bw"] for half in halves([row]))
    bar = SHARE_OF_MEMORY * MEMORY_GBPS
    said = f"{best:.1f} GB/s, {way_of(rows)}; bar: {bar:.0f}"
    right = all_right(part, f"{name}: results", rows)
    if row["way"] == "staged":  # over the host's bus, which says nothing of the GPU's memory
        return [*right, Check(part, f"{name}: busbw", FIGURE, f"through the host; {said}")]
    return [*right, Check(part, f"{name}: busbw", PASSED if best >= bar else FAILED, said)]


# ---- anything else


def read_code(part: str, name: str, ended: Ended) -> list[Check]:
    if ended.code == 0:
        return [Check(part, name, PASSED, f"{ended.seconds:.0f} s")]
    return [Check(part, name, FAILED, one_line(ended.why()))]


def read_sanitizer(part: str, name: str, ended: Ended) -> list[Check]:
    """Its summary must be there: a test that was skipped has run no kernel."""
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
