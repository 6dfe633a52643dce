"""Slurm's short forms, compared with `scontrol show hostnames` if that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pycollective.bootstrap.hostlist import expand, tasks_per_node
from pycollective.errors import InvalidArgument

LISTS = {
    "n0": ["n0"],
    "n0,n1": ["n0", "n1"],
    "n[0-1],gpu[001-003,007]": ["n0", "n1", "gpu001", "gpu002", "gpu003", "gpu007"],
    "rack[1-2]n[08-10]": [f"rack{r}n{n}" for r in (1, 2) for n in ("08", "09", "10")],
    "n[098-101]": ["n098", "n099", "n100", "n101"],
    "n[1],m": ["n1", "m"],
    "10.0.0.[1-2]": ["10.0.0.1", "10.0.0.2"],
}
BEYOND = {"a-b[1,3]-ib": ["a-b1-ib", "a-b3-ib"]}  # text after the last bracket, which not every Slurm reads
NEEDS_SCONTROL = pytest.mark.skipif(shutil.which("scontrol") is None, reason="scontrol is not installed")


@pytest.mark.parametrize(("text", "names"), [*LISTS.items(), *BEYOND.items()])
def test_host_lists(text: str, names: list[str]) -> None:
    assert expand(text) == names


@NEEDS_SCONTROL
@pytest.mark.parametrize("text", LISTS)
def test_scontrol_reads_them_alike(text: str, tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"  # scontrol needs one
    conf.write_text("ClusterName=none\nSlurmctldHost=localhost\nNodeName=n0\nPartitionName=all Nodes=n0\n")
    done = subprocess.run(
        ["scontrol", "show", "hostnames", text],
        env={**os.environ, "SLURM_CONF": str(conf)},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stdout.split() == LISTS[text]


@pytest.mark.parametrize(
    "text",
    ["", "n[1", "n1]", "n[]", "n[a-b]", "n[2-1]", "n[1-2", "a,,b", ",a", "n[0-99999999]", "n[1-]", "[[1]]"],
)
def test_what_is_no_host_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a host list as Slurm writes it"):
        expand(text)


@pytest.mark.parametrize(
    ("text", "counts"), [("4", [4]), ("3,1", [3, 1]), ("2(x2)", [2, 2]), ("2(x2),1", [2, 2, 1])]
)
def test_tasks_per_node(text: str, counts: list[int]) -> None:
    assert tasks_per_node(text) == counts


@pytest.mark.parametrize("text", ["", "x", "2(x)", "2(x2", "1,,1", "2(x99999999)"])
def test_what_is_no_number_of_tasks_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a number of tasks per node"):
        tasks_per_node(text)
