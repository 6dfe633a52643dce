"""Measures what tests cost: the processor seconds (user and system) of each test.

They include all processes that the test started and that have ended. --processor-seconds prints
them at the end. Unlike durations they do not depend on the other load of the machine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

SHOWN = 40


class ProcessorSeconds:
    """A plugin.

    Under xdist the workers measure, and their reports carry the figures to the main process.
    """

    def __init__(self) -> None:
        self.counted = 0.0
        self.of_test: Counter[str] = Counter()

    def pytest_runtest_logstart(self) -> None:
        self.counted = so_far()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        before, self.counted = self.counted, so_far()
        report.processor_s = self.counted - before
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.of_test[report.nodeid] += report.processor_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        of_file: Counter[str] = Counter()
        for test, seconds in self.of_test.items():
            of_file[test.partition("::")[0]] += seconds
        terminalreporter.section(f"{self.of_test.total():.1f} processor seconds")
        for costs in (of_file, self.of_test):
            for name, seconds in costs.most_common(SHOWN):
                terminalreporter.line(f"{seconds:8.1f}  {name}")
            terminalreporter.line("")


def so_far() -> float:
    return sum(os.times()[:4])
