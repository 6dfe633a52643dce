"""`pycollective bench --compare`: launches all libraries in rounds, and reports the figures."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pycollective.tools.compare import machine, roofline, table
from pycollective.tools.compare.collectives import COLLECTIVES
from pycollective.tools.compare.compared_libraries import OURS, ComparedLibrary, Missing, find
from pycollective.tools.compare.figures import Figures, Row, ratio, row
from pycollective.tools.compare.launching import Launch, Task, launch

PER_CELL_BYTES = 256 << 20  # bytes moved per cell and launch; FEWEST and MOST limit the iterations
FEWEST, MOST = 10, 1000


@dataclass
class Comparison:
    """All results. They are complete after the last launch."""

    ranks: int
    rounds: int
    tasks: list[Task]
    missing: list[Missing] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)  # (library, reason) of launches that failed
    versions: dict[str, str] = field(default_factory=dict)
    # by library and index of the task; one element per round
    figures: dict[tuple[str, int], list[Figures]] = field(default_factory=dict)
    roofline: list[roofline.RooflinePoint] = field(default_factory=list)
    no_roofline: str = ""

    def add(self, name: str, done: Launch) -> None:
        """Adds the results of one launch."""
        if done.failure:
            self.failures.append((name, done.failure))
            return
        self.versions[name] = done.version
        for number, figures in enumerate(done.figures):
            if figures is not None:
                self.figures.setdefault((name, number), []).append(figures)

    def rows(self) -> list[Row]:
        """Returns the rows of all libraries, in the order of the tasks."""
        return [
            row(task.collective, task.nbytes, name, self.figures[name, number])
            for number, task in enumerate(self.tasks)
            for name in self.versions
            if (name, number) in self.figures
        ]

    def as_json(self) -> dict[str, Any]:
        """Returns all results in machine-readable form, with times in seconds."""
        rows = self.rows()
        cells = dict.fromkeys((each.collective, each.nbytes) for each in rows)
        return {
            "machine": machine.describe(),
            "command": sys.argv[1:],
            "ranks": self.ranks,
            "rounds": self.rounds,
            "versions": self.versions,
            "missing": {each.name: each.why for each in self.missing},
            "failures": self.failures,
            "rows": [each.as_json(self.ranks) for each in rows],
            "ratios": [
                {"collective": name, "nbytes": nbytes, "ratio": ratio(_cell(rows, name, nbytes), OURS.name)}
                for name, nbytes in cells
            ],
            "ceilings": [asdict(each) for each in self.roofline],
            "no_ceilings": self.no_roofline,
        }


def _cell(rows: Sequence[Row], collective: str, nbytes: int) -> list[Row]:
    return [each for each in rows if (each.collective, each.nbytes) == (collective, nbytes)]


def tasks_of(options: argparse.Namespace) -> list[Task]:
    """Returns a task for every collective and size, with few iterations for large sizes."""
    tasks = []
    for name in options.ops:
        for nbytes in options.sizes if COLLECTIVES[name].moves_data else [0]:
            by_size = min(MOST, max(FEWEST, PER_CELL_BYTES // max(1, nbytes)))
            tasks.append(Task(name, nbytes, options.iters or by_size))
    return tasks


def libraries_of(options: argparse.Namespace) -> tuple[list[ComparedLibrary], list[Missing]]:
    """Returns the libraries that can be measured, pycollective first, and the missing ones."""
    given = dict(options.peer)
    found = [OURS]
    missing = []
    for name in dict.fromkeys([*(options.compare or []), *given]):
        each = find(name, given[name]) if name in given else find(name)
        if isinstance(each, Missing):
            missing.append(each)
        else:
            found.append(each)
    return found, missing


def run(options: argparse.Namespace) -> int:
    """Runs the whole command. Returns 1 if a result was wrong or pycollective has failed."""
    why = ""
    if options.plot:
        from pycollective.tools.compare.plot import missing_library

        drawn = any(COLLECTIVES[name].moves_data for name in options.ops)
        why = missing_library() if drawn else f"--plot: {' '.join(options.ops)} has no sizes to draw over"
    why = why or unwritable(options)
    if why:
        print(f"pycollective bench: {why}", file=sys.stderr)
        return 2
    libraries, missing = libraries_of(options)
    comparison = Comparison(options.ranks, options.rounds, tasks_of(options), missing)
    for each in missing:
        message(f"{each.name} is missing: {each.why}")
    found = roofline.measure(options.sizes)
    if isinstance(found, str):
        comparison.no_roofline = found
        message(f"the machine's roofline is missing: {found}")
    else:
        comparison.roofline = found
    for number in range(options.rounds):
        first = number % len(libraries)  # each round begins with another library
        for library in [*libraries[first:], *libraries[:first]]:
            message(f"round {number + 1} of {options.rounds}: {library.name}")
            done = launch(library, options.ranks, comparison.tasks, options.limit)
            if done.failure:
                message(f"{library.name} has failed: {done.failure}")
            comparison.add(library.name, done)
    comparison.versions = {
        each.name: comparison.versions[each.name] for each in libraries if each.name in comparison.versions
    }
    return show(comparison, options)


def unwritable(options: argparse.Namespace) -> str:
    """Returns why an output file cannot be written, or "".

    This is checked first, because the measurements take minutes.
    """
    files = [*options.plot, *([Path(options.json)] if options.json not in (None, "-") else [])]
    wrong = [each for each in files if not each.parent.is_dir() or not os.access(each.parent, os.W_OK)]
    return f"cannot write {wrong[0]}: {wrong[0].parent} is no folder that can be written to" if wrong else ""


def message(what: str) -> None:
    """Prints a progress message for the user."""
    print(f"# {what}", file=sys.stderr, flush=True)


def show(comparison: Comparison, options: argparse.Namespace) -> int:
    """Prints and writes the requested results. Returns the exit code."""
    rows = comparison.rows()
    if options.json != "-":
        print(text_of(comparison, rows), flush=True)
    if options.json:
        text = json.dumps(comparison.as_json(), indent=1)
        if options.json == "-":
            print(text, flush=True)
        else:
            Path(options.json).write_text(text + "\n")
    if options.plot:
        from pycollective.tools.compare.plot import draw

        draw(rows, comparison.roofline, options.plot, ranks=comparison.ranks, where=machine.describe())
    lost = any(name == OURS.name for name, _ in comparison.failures)
    return 1 if lost or not all(each.right for each in rows) else 0


def text_of(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Returns the table, with the facts that are needed to read it."""
    names = list(comparison.versions)
    lines = [
        f"# {comparison.ranks} ranks on one host: {machine.describe()}",
        "# " + ", ".join(f"{name} ({version})" for name, version in comparison.versions.items()),
        *(f"# missing: {each.name}: {each.why}" for each in comparison.missing),
        *(f"# failed: {name}: {why}" for name, why in comparison.failures),
        *([f"# missing: roofline: {comparison.no_roofline}"] if comparison.no_roofline else []),
        f"# microseconds: the median over {comparison.rounds} rounds of each round's median, and of its p99",
        "# / best peer: our median over that of the fastest other library; below 1 we are faster",
    ]
    blocks = [
        table.block([each for each in rows if each.collective == name], names, OURS.name)
        for name in dict.fromkeys(each.collective for each in rows)
    ]
    if comparison.roofline:
        blocks.append(table.roofline(comparison.roofline))
    return "\n".join(["\n".join(lines), *blocks])
