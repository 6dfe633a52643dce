"""The table of `scripts/test gpu`, made of canned output.

A part that hangs takes no time of others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

from gpu.report import parts, readers, requirements, table  # noqa: E402
from gpu.report.__main__ import Report, checks_listed, run_parts  # noqa: E402
from gpu.report.check import FAILED, FIGURE, PASSED, SKIPPED, Check  # noqa: E402
from gpu.report.ended import Ended, run  # noqa: E402
from gpu.report.parts import Part, Places  # noqa: E402
from gpu.table import PROGRAMS  # noqa: E402

GTEST = """Running main() from gtest_main.cc
[ RUN      ] KernelsOnGpu.copies
[       OK ] KernelsOnGpu.copies (12 ms)
[ RUN      ] KernelsOnGpu.sums/1
gpu.h:52: Failure
Value of: same
  Actual: false
[  FAILED  ] KernelsOnGpu.sums/1, where GetParam() = 3 (4 ms)
[ RUN      ] NcclOnGpu.reduces
/x/nccl_on_gpu_test.cc:15: Skipped
no NCCL: libnccl.so.2: not found
[  SKIPPED ] NcclOnGpu.reduces (0 ms)
[ RUN      ] NcclOnGpu.hangs
"""
LISTED = """NcclOnGpu.
  reduces
  hangs
KernelsOnGpu.
  copies
  sums/1  # GetParam() = 3
"""


def outcomes(checks: list[Check]) -> dict[str, tuple[str, str]]:
    return {each.name: (each.outcome, each.said) for each in checks}


def test_googletests_output_becomes_checks_and_what_was_not_reached_has_failed() -> None:
    names = readers.listed_tests(LISTED)
    assert names == ["NcclOnGpu.reduces", "NcclOnGpu.hangs", "KernelsOnGpu.copies", "KernelsOnGpu.sums/1"]
    assert outcomes(readers.read_gtest("C++", names, Ended(None, GTEST, 70))) == {
        "KernelsOnGpu.copies": (PASSED, ""),
        "KernelsOnGpu.sums/1": (FAILED, "Value of: same Actual: false"),
        "NcclOnGpu.reduces": (SKIPPED, "no NCCL: libnccl.so.2: not found"),
        "NcclOnGpu.hangs": (FAILED, "not reached: its deadline of 70 s passed"),
    }
    assert outcomes(readers.read_gtest("C++", ["A.a"], Ended(-11, "[       OK ] A.a (1 ms)\n"))) == {
        "A.a": (PASSED, ""),
        "to its end": (FAILED, "killed by signal 11"),
    }
    (nothing,) = readers.read_gtest("C++", [], Ended(127, "cannot start test_gpu: no such file\n"))
    assert nothing == Check(
        "C++", "all of it", FAILED, "ended with code 127: cannot start test_gpu: no such file"
    )


def test_the_lines_of_on_gpu_become_checks() -> None:
    said = "passed    torch graphs replay the call: 3 replays\nTraceback\n"
    said += "not made  cupy arrays: No module named 'cupy'\n"
    names = ["torch graphs replay the call", "cupy arrays", "last"]
    assert outcomes(readers.read_on_gpu("Python", names, Ended(-9, said))) == {
        "torch graphs replay the call": (PASSED, "3 replays"),
        "cupy arrays": (SKIPPED, "No module named 'cupy'"),
        "last": (FAILED, "not reached: killed by signal 9"),
    }
    hung = outcomes(readers.read_on_gpu("Python", names[:1], Ended(None, said, 50)))
    assert hung["to its end"] == (FAILED, "its deadline of 50 s passed")
    none = readers.read_on_gpu("Python", names, Ended(0, "not made: no CUDA driver: not found\n"))
    assert {(each.outcome, each.said) for each in none} == {(SKIPPED, "no CUDA driver: not found")}


def test_the_names_of_on_gpu_are_those_that_its_lines_have() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "gpu" / "card" / "on_gpu.py", "list"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    names = done.stdout.splitlines()
    assert "together: a killed rank is noticed by the other" in names
    assert {name.partition(": ")[0] for name in names} == {"together", "alone"}


def half(
    time_us: float, raw_us: float, wrong: int | None = 0, bus: float = 700.0, raw_wrong: int | None = 0
) -> dict[str, Any]:
    return {
        "time": time_us,
        "alg_bw": bus,
        "bus_bw": bus,
        "nwrong": wrong,
        "host_time": time_us / 2,
        "host_p50": time_us / 2,
        "host_p99": time_us,
        "p50": time_us,
        "p99": time_us * 2,
        "raw_time": raw_us,
        "raw_host_time": raw_us / 2,
        "raw_host_p50": raw_us / 2,
        "raw_host_p99": raw_us,
        "raw_p50": raw_us,
        "raw_p99": raw_us * 2,
        "raw_nwrong": raw_wrong,
    }


def row(
    size: int, out: dict[str, Any] | None, into: dict[str, Any] | None, way: str = "nccl"
) -> dict[str, Any]:
    why = None if way == "nccl" else "rank 0 and rank 1 share one GPU"
    return {
        "collective": "allreduce",
        "size": size,
        "out_of_place": out,
        "in_place": into,
        "copy_time": size / 2.15e6,  # us: 2,150 GB/s
        "way": way,
        "why_not_nccl": why,
        "nccl_version": "2.28.9" if way == "nccl" else None,
    }


def bench(judge: readers.Judge, *rows: dict[str, Any]) -> list[Check]:
    text = "".join(json.dumps(each) + "\n" for each in rows)
    return readers.read_bench("benchmark", "it", judge, Ended(0, text))


def test_what_ours_adds_to_nccls_own_small_call_has_a_bar_in_four_of_five_runs() -> None:
    def judged(*out_of_place: float, into: float = 5.9) -> tuple[str, str, str]:
        rows = [row(8, half(each, 4), half(into, 4)) for each in out_of_place]
        checks = bench(readers.added_to_nccl, *rows)
        return checks[0].outcome, checks[1].outcome, checks[2].outcome

    assert judged(4.9, 4.8, 4.5, 4.9, 9) == (PASSED, PASSED, PASSED)
    assert judged(4.9, 4.8, 4.5, 5.1, 9) == (PASSED, FAILED, PASSED)
    assert judged(4.9, 4.9, 4.9, 4.9, 4.9, into=6.1) == (PASSED, PASSED, FAILED)
    assert judged(4.9) == (PASSED, FAILED, FAILED)  # one run proves nothing
    said = bench(readers.added_to_nccl, *[row(8, half(4.5, 4), None)] * 2)[1].said
    assert said == "+0.50, +0.50 us to NCCL's own 4.00, 4.00, at most: +1.0 in all runs but 1"


def test_the_bar_is_judged_by_medians_so_one_slow_turn_decides_nothing() -> None:
    one_slow_turn = {**half(4.5, 4), "time": 50.0, "p99": 90.0}
    assert bench(readers.added_to_nccl, *[row(8, one_slow_turn, None)] * 5)[1].outcome == PASSED
    slow_in_most = {**half(6.5, 4), "time": 4.0}
    assert bench(readers.added_to_nccl, *[row(8, slow_in_most, None)] * 5)[1].outcome == FAILED


def test_each_collective_and_size_is_a_figure_beside_nccls_own() -> None:
    large = row(1 << 20, half(30, 29), None)
    figures = outcomes(bench(readers.figures_beside_nccl, row(8, half(50, 4), half(60, 4)), large))
    assert figures["it: results"] == (PASSED, "1 collectives, by nccl")
    assert figures["it: allreduce of 8 B"] == (
        FIGURE,
        "out of place 50.00 us, NCCL's own 4.00, p99 100.00 us, NCCL's own 8.00, "
        "host 25.00 us, NCCL's own 2.00, p99 50.00 us, NCCL's own 4.00, "
        "in place 60.00 us, NCCL's own 4.00, p99 120.00 us, NCCL's own 8.00, "
        "host 30.00 us, NCCL's own 2.00, p99 60.00 us, NCCL's own 4.00",
    )
    assert "busbw 700.0 GB/s" in figures["it: allreduce of 1 MiB"][1]


def test_what_is_wrong_in_nccls_own_calls_fails_too() -> None:
    wrong, _ = bench(readers.figures_beside_nccl, row(8, half(1, 1, raw_wrong=3), half(1, 1, raw_wrong=1)))
    assert (wrong.outcome, wrong.said.partition(";")[0]) == (FAILED, "4 wrong elements of NCCL's own calls")
    unchecked, _ = bench(readers.figures_beside_nccl, row(8, half(1, 1, raw_wrong=None), None))
    assert (unchecked.outcome, unchecked.said) == (FAILED, "not verified")


def test_wrong_elements_fail_and_the_way_is_said() -> None:
    (right,) = bench(readers.all_right, row(8, half(1, 1), None, "staged"))
    assert (right.outcome, right.said) == (
        PASSED,
        "1 collectives, by staged (rank 0 and rank 1 share one GPU)",
    )
    (wrong,) = bench(readers.all_right, row(8, half(1, 1, 3), half(1, 1, 2)))
    assert wrong.outcome == FAILED
    assert wrong.said.startswith("5 wrong elements")
    (unchecked,) = bench(readers.all_right, row(8, half(1, 1, None), None))
    assert unchecked.outcome == FAILED


def test_bandwidth_is_held_against_a_copy_on_the_same_gpu() -> None:
    assert [each.outcome for each in bench(readers.bandwidth, row(256 << 20, half(1, 1), None))] == [
        PASSED,
        PASSED,
    ]
    slow = bench(readers.bandwidth, row(256 << 20, half(1, 1, bus=600), None))
    assert [each.outcome for each in slow] == [PASSED, FAILED]
    assert slow[1].said == "600.0 GB/s, by nccl; at least 645, 60 % of the 1075 that the driver's copy shows"
    staged = bench(readers.bandwidth, row(256 << 20, half(1, 1, bus=30), None, "staged"))
    assert [each.outcome for each in staged] == [PASSED, FIGURE]


def test_a_benchmark_that_cannot_run_here_is_skipped_and_one_that_fails_is_not() -> None:
    read = readers.read_bench
    (skipped,) = read(
        "benchmark", "it", readers.all_right, Ended(77, "pycollective-bench: no CUDA driver: x\n")
    )
    assert (skipped.outcome, skipped.said) == (SKIPPED, "no CUDA driver: x")
    (failed,) = read(
        "benchmark", "it", readers.all_right, Ended(1, "pycollective-bench: 3 elements are wrong\n")
    )
    assert failed.outcome == FAILED
    wrong = json.dumps(row(8, half(1, 1, 5), None)) + "\nno capture\n"
    assert {each.outcome for each in read("benchmark", "it", readers.all_right, Ended(77, wrong))} == {FAILED}
    rows = json.dumps(row(8, half(1, 1), None)) + '\n{"collective": "allred'
    assert outcomes(read("benchmark", "it", readers.all_right, Ended(None, rows, 20))) == {
        "it": (PASSED, "1 collectives, by nccl"),
        "it: to its end": (FAILED, "its deadline of 20 s passed"),
    }


@pytest.mark.parametrize(
    ("code", "text", "outcome"),
    [
        (0, "[       OK ] KernelsOnGpu.a (1 ms)\n========= ERROR SUMMARY: 0 errors\n", PASSED),
        (9, "[       OK ] KernelsOnGpu.a (1 ms)\n========= ERROR SUMMARY: 2 errors\n", FAILED),
        (0, "[  SKIPPED ] KernelsOnGpu.a (1 ms)\n========= ERROR SUMMARY: 0 errors\n", SKIPPED),
        (0, "0 tests ran\n========= ERROR SUMMARY: 0 errors\n", FAILED),
        (1, "Target application returned an error\n", FAILED),
    ],
)
def test_the_sanitizers_summary_decides(code: int, text: str, outcome: str) -> None:
    (check,) = readers.read_sanitizer("compute-sanitizer", "memcheck", Ended(code, text))
    assert check.outcome == outcome


def test_without_compute_sanitizer_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    places = Places(sys.executable, tmp_path / "test_gpu", tmp_path, tmp_path)
    (check,) = run_parts(parts.cpp(places, [])[1:], {}, tmp_path, time.monotonic() + 1)
    assert (check.outcome, check.said) == (SKIPPED, "not run: no compute-sanitizer")


def test_a_skip_is_a_failure_where_a_gpu_is_required() -> None:
    required = Check("C++", "a", SKIPPED, "no driver").where_required()
    assert (required.outcome, required.said) == (FAILED, "not skipped, since a GPU is required: no driver")
    assert Check("C++", "a", FIGURE, "1 us").where_required().outcome == FIGURE


def test_a_part_that_hangs_ends_at_its_deadline_with_all_that_it_started(tmp_path: Path) -> None:
    script = "import os, signal; os.fork(); print('begun', flush=True); signal.pause()"
    hangs = Part(
        "hangs", [sys.executable, "-c", script], 2, lambda ended: [Check("p", "hangs", FAILED, ended.why())]
    )
    good = Part("good", ["echo", "fine"], 5, lambda ended: [Check("p", "good", PASSED, ended.text.strip())])
    began = time.monotonic()
    checks = run_parts([hangs, good], dict(os.environ), tmp_path, began + 30)
    assert time.monotonic() - began < 20
    assert outcomes(checks) == {"hangs": (FAILED, "its deadline of 2 s passed"), "good": (PASSED, "fine")}
    log = (tmp_path / "hangs.log").read_text()
    assert log.count("\nbegun") == 2
    assert "$ deadline of 2 s after" in log


def test_no_part_runs_among_the_sources_which_have_no_compiled_module(tmp_path: Path) -> None:
    assert run(["pwd"], {}, 5, tmp_path / "pwd.log").text.strip() == "/"


def test_when_all_time_is_over_the_rest_says_so(tmp_path: Path) -> None:
    part = Part("late", ["false"], 5, lambda _: [])
    (check,) = run_parts([part], {}, tmp_path, time.monotonic() - 1)
    assert (check.outcome, check.said) == (SKIPPED, "not run: the 480 s of all parts were over")
    (check,) = run_parts([part], {}, tmp_path, time.monotonic() + 9, has_package=False)
    assert check.said == "not run: the package is not installed"


def test_the_table_is_written_after_every_part_so_a_run_that_is_killed_leaves_what_it_has(
    tmp_path: Path,
) -> None:
    def good(ended: Ended) -> list[Check]:
        return [Check("p", "good", PASSED, ended.text.strip())]

    seen: list[str] = []

    def look(ended: Ended) -> list[Check]:
        seen.append(ended.text)
        return []

    report = Report(tmp_path, tmp_path / "site")
    first = Part("first", ["echo", "fine"], 5, good)
    looks = Part("looks", ["cat", *(str(tmp_path / f"table.{end}") for end in ("md", "txt"))], 5, look)
    run_parts([first, looks], dict(os.environ), tmp_path, time.monotonic() + 30, done=report.add)
    assert "| p | good | passed | fine |" in seen[0]
    assert seen[0].count("unfinished: ") == 2
    assert report.finish().splitlines()[-1] == "1 passed"
    assert "unfinished" not in (tmp_path / "table.md").read_text()
    assert [each["name"] for each in json.loads((tmp_path / "checks.json").read_text())] == ["good"]


def test_where_a_gpu_is_required_the_table_of_a_run_that_is_killed_says_so_too(tmp_path: Path) -> None:
    Report(tmp_path, tmp_path, required=True).add([Check("C++", "a", SKIPPED, "no driver")])
    assert "| C++ | a | failed | not skipped, since a GPU is required" in (tmp_path / "table.md").read_text()


def test_lists_of_tests_with_unknown_lines_have_failed() -> None:
    names = "together: a\nalone: b\n"
    assert checks_listed(Ended(0, names)) == (["a"], ["b"], [])
    for text, why in (
        (names + "beside: c\n", "unknown: beside: c"),
        ("", "it names none"),
        ("together: a\n", "it names none that is made alone"),
    ):
        *_, (failed,) = checks_listed(Ended(0, text))
        assert (failed.part, failed.outcome, failed.said) == ("Python", FAILED, why)
    *_, (failed,) = checks_listed(Ended(1, "no package\n"))
    assert failed.said == "ended with code 1: no package"


@pytest.mark.parametrize("words", [["lsit"], ["list", "this one"]])
def test_on_gpu_refuses_names_that_it_does_not_know(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "gpu" / "card" / "on_gpu.py", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert words[-1] in done.stderr


def test_output_that_cannot_be_read_is_a_failure_and_the_rest_goes_on(tmp_path: Path) -> None:
    def read(ended: Ended) -> list[Check]:
        raise json.JSONDecodeError("no value", ended.text, 0)

    odd = Part("odd", ["echo", "{}}"], 5, read)
    good = Part("good", ["echo", "fine"], 5, lambda ended: [Check("p", "good", PASSED, ended.text.strip())])
    first, second = run_parts([odd, good], dict(os.environ), tmp_path, time.monotonic() + 30)
    assert (first.outcome, second.outcome) == (FAILED, PASSED)


def test_a_program_that_is_not_there_is_an_end_like_any_other(tmp_path: Path) -> None:
    ended = run([str(tmp_path / "none")], {}, 1, tmp_path / "log")
    assert ended.code == 127
    assert "No such file" in ended.why()


def test_the_deadlines_of_all_parts_fit_into_eight_minutes() -> None:
    places = parts.places_here()
    everything = [
        parts.install(places),
        *parts.cpp(places, []),
        *parts.python_checks(places, [], []),
        *parts.benchmarks(places),
    ]
    others = 10 + 10 + 10 + 10  # the lists of the tests, and doctor
    assert (
        sum(each.deadline_s for each in everything) + others <= parts.LIMIT_S - 60
    )  # for programs, the last part
    assert len({each.name for each in everything}) == len(everything)


def test_the_benchmarks_of_the_report_are_command_lines_that_the_program_takes() -> None:
    for part in parts.benchmarks(parts.places_here()):
        words = [*part.command[3:], "--timeout_s", "20"]
        env = {**os.environ, **part.env, "PYCOLLECTIVE_CUDA_LIB": "/nowhere"}
        done = subprocess.run(
            [sys.executable, *part.command[1:3], *words], env=env, capture_output=True, text=True, timeout=60
        )
        (check,) = part.read(Ended(done.returncode, done.stdout + done.stderr))
        assert check.outcome == SKIPPED, done.stderr
        assert "/nowhere" in check.said


CHECKS = [
    Check("C++", "KernelsOnGpu.copies", PASSED),
    Check("Python", "a killed rank is noticed by the other", PASSED, "after 12 ms"),
    Check("benchmark", "1 rank beside NCCL: 8 B", FAILED, "+3.10 us | at most: +2 us"),
    Check("benchmark", "CUDA graph, 1 rank: results", FIGURE, "3.00 us"),
    Check("compute-sanitizer", "memcheck of KernelsOnGpu", SKIPPED, "not run: no compute-sanitizer"),
]


def test_one_table_has_the_machine_and_every_check() -> None:
    shown = table.text(["GPU: NVIDIA H100"], CHECKS)
    lines = shown.splitlines()
    assert lines[0] == "GPU: NVIDIA H100"
    assert [line.split()[0] for line in lines[2:7]] == [each.part for each in CHECKS]
    assert lines[-1] == "2 passed, 1 failed, 1 skipped, 1 figure"
    assert lines[2].index("passed") == lines[4].index("failed") == lines[5].index("figure")


def test_as_markdown_it_has_the_requirements_too() -> None:
    shown = table.markdown(["GPU: NVIDIA H100"], CHECKS)
    assert "- GPU: NVIDIA H100" in shown
    assert "| benchmark | 1 rank beside NCCL: 8 B | failed | +3.10 us \\| at most: +2 us |" in shown
    assert "| kill -9 of a rank | seen in less than 0.1 s | partly: after 12 ms |" in shown
    assert "| CUDA graphs | replays are right | partly: 3.00 us |" in shown
    assert "| no error | not run: not run: no compute-sanitizer |" not in shown
    for line in shown.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") in (4, 5)


def test_the_page_of_requirements_names_all_of_them() -> None:
    page = (ROOT / "benchmarks" / "gpu.md").read_text()
    for requirement in requirements.REQUIREMENTS:
        assert f"| {requirement.name} | {requirement.wanted} |" in page
    assert "scripts/test gpu" in page


def test_every_bar_is_judged_by_checks_that_there_are() -> None:
    cpp = subprocess.run(
        ["grep", "-rhoE", r"^TEST_F\(\w+, \w+", ROOT / "tests" / "cpp" / "gpu"],
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    sources = (ROOT / "tests" / "gpu" / "card" / "on_gpu.py").read_text()
    names = ["C++: " + ".".join(line.removeprefix("TEST_F(").split(", ")) for line in cpp]
    names += [
        "Python: " + line.split("(")[0][4:].replace("_", " ")
        for line in sources.splitlines()
        if line[:4] == "def "
    ]
    names += [f"programs: {each.name}" for each in PROGRAMS]
    for part in parts.benchmarks(parts.places_here()):
        names.append("benchmark: " + part.read(Ended(77, "no"))[0].name)
    names += [f"{name}: results" for name in names if name.startswith("benchmark: ")]
    names += [f"{name}: busbw" for name in names if name.startswith("benchmark: ")]
    names += [f"benchmark: 8 B, 1 rank beside NCCL: {place}" for place in ("out of place", "in place")]
    names += ["compute-sanitizer: memcheck of KernelsOnGpu"]
    for requirement in requirements.REQUIREMENTS:
        for wanted in requirement.checks:
            assert any(name.startswith(wanted) for name in names), wanted
