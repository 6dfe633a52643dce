"""`pycollective plan` and explain(): what they print and refuse about worlds that may not exist."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import pycollective as pc
from pycollective import _core, testing

pytestmark = pytest.mark.timeout(120)

RING_OF_4 = """\
round  rank 0      rank 1      rank 2      rank 3
0      c0>1 +c3<3  c1>2 +c0<0  c2>3 +c1<1  c3>0 +c2<2
1      c3>1 +c2<3  c0>2 +c3<0  c1>3 +c0<1  c2>0 +c1<2
2      c2>1 +c1<3  c3>2 +c2<0  c0>3 +c3<1  c1>0 +c0<2
3      c1>1 c0<3   c2>2 c1<0   c3>3 c2<1   c0>0 c3<2
4      c0>1 c3<3   c1>2 c0<0   c2>3 c1<1   c3>0 c2<2
5      c3>1 c2<3   c0>2 c3<0   c1>3 c0<1   c2>0 c1<2
"""
RANK_1_OF_3 = """\
rank 1 of 3, recursive_doubling allreduce, 1 chunk, 1 of scratch
  0  send        chunk 0 -> rank 0
  1  recv        chunk 0 into scratch 0 <- rank 0
  2  reduce      chunk 0 from scratch 0   holds 1 + 2 of 3  after step 0
"""


def plan(*words: str, code: int = 0) -> str:
    """Returns the standard output of `pycollective plan ...`, or its errors if it is to fail."""
    command = [sys.executable, "-m", "pycollective", "plan", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_show_draws_the_messages_of_a_small_world() -> None:
    assert plan("show", "allreduce", "--algorithm", "ring", "-n", "4") == RING_OF_4


def test_show_lists_the_steps_of_one_rank() -> None:
    words = ("show", "allreduce", "--algorithm", "recursive_doubling", "-n", "3", "--rank", "1")
    assert plan(*words) == RANK_1_OF_3


def test_show_cuts_an_array_into_pieces_if_asked() -> None:
    words = ("show", "broadcast", "--algorithm", "binomial", "-n", "2", "--split", "2", "--root", "1")
    assert plan(*words) == "round  rank 0     rank 1\n0      c0<1 c1<1  c0>0 c1>0\n"


def test_list_has_every_algorithm_with_shapes_cost_and_source() -> None:
    rows = json.loads(plan("list", "--json"))
    by_name = {(row["collective"], row["algorithm"]): row for row in rows}
    assert len(by_name) == len(rows) >= 20
    assert by_name["allreduce", "ring"]["shapes"] == "any number of ranks, split"
    assert by_name["allgather", "recursive_doubling"]["shapes"] == "powers of two, parts of any size"
    assert by_name["alltoall", "bruck"]["shapes"] == "any number of ranks, equal parts"
    lines = plan("list").splitlines()
    assert lines[0].split() == ["collective", "algorithm", "shapes", "cost", "source"]
    assert len(lines) == 1 + len(rows)
    assert all(
        row["cost"] in line and row["source"] in line for row, line in zip(rows, lines[1:], strict=True)
    )


def test_check_finds_every_algorithm_right() -> None:
    results = json.loads(plan("check", "-n", "1..9", "--json"))
    assert len(results) == len(_core._plan_catalog())
    for result in results:
        assert result["errors"] == []
        assert result["worlds"] > 0
        assert result["methods"] == ["clocks"]


def test_check_goes_through_very_many_ranks_in_one_pass() -> None:
    words = "check --collective allreduce --algorithm double_binary_tree -n 2048 --split 1 --split 4"
    assert plan(*words.split()) == "allreduce double_binary_tree: 2 worlds, right (one pass)\n"


def test_a_barrier_of_very_many_ranks_is_not_said_to_be_right() -> None:
    command = [sys.executable, "-m", "pycollective", "plan", "check", "--collective", "barrier", "-n", "4096"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "cannot be checked in one pass: take fewer ranks" in done.stdout


def test_simulate_runs_a_thousand_ranks_on_data() -> None:
    result = json.loads(
        plan("simulate", "allreduce", "--algorithm", "ring", "-n", "1024", "--nbytes", "64m", "--json")
    )
    assert result["nbytes"] == 64 << 20
    assert result["steps"] == 4 * 1023 * 1024
    assert result["messages"] == 2 * 1023 * 1024
    assert result["rounds"] == 2 * 1023
    assert result["sent_nbytes_most"] == result["sent_nbytes_least"] == 2 * 1023 * (64 << 10)
    assert result["exact"]
    assert result["model"] == "ethernet_10g"
    assert 0.1 < result["seconds"] < 1


def test_simulate_says_it_in_words() -> None:
    text = plan("simulate", "broadcast", "--algorithm", "binomial", "-n", "4", "--nbytes", "1k")
    assert text.splitlines()[:4] == [
        "result    right on all 4 ranks",
        "steps     6 of all ranks, 3 messages",
        "rounds    2 messages on the longest chain",
        "sent      0 to 2048 bytes by a rank",
    ]
    assert text.splitlines()[4].startswith("predicted ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("show allreduce --algorithm bruck -n 4", "not one of those for allreduce: ring, recursive_doubling"),
        ("show allmerge --algorithm ring -n 4", '"allmerge" is not one of allreduce'),
        ("show allgather --algorithm recursive_doubling -n 3", "it supports powers of two"),
        ("show barrier --algorithm dissemination -n 4 --split 2", "cannot be split"),
        ("show allreduce --algorithm ring -n 4 --split 0", "split must be at least 1"),
        ("show allreduce --algorithm ring -n 4 --rank 4", "rank 4 is no rank of 4"),
        ("show broadcast --algorithm binomial -n 4 --root 4", "root 4 is no rank of 4"),
        ("show allreduce --algorithm ring -n 0", "'0' is no number of ranks: 1 to 65535"),
        ("show allreduce --algorithm ring -n 70000", "'70000' is no number of ranks: 1 to 65535"),
        ("check -n 64..1", "write the smaller number first"),
        ("check --algorithm rung", "`pycollective plan list` shows all"),
        ("simulate allreduce --algorithm ring -n 4 --nbytes 64x", "write 65536, 64k, 64m or 1g"),
        ("simulate allreduce --algorithm ring -n 30000", "take fewer ranks or a smaller split"),
        ("simulate allreduce --algorithm ring -n 4 --model pigeon", "invalid choice: 'pigeon'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line_that_says_what_to_try(words: str, says: str) -> None:
    error = plan(*words.split(), code=2)
    assert says in error.splitlines()[-1]
    assert "Traceback" not in error


def test_explain_without_a_world_says_what_one_would_do_and_why() -> None:
    text = pc.explain("allreduce", nbytes=64 << 20, size=4, hosts=4, rank=2)
    lines = text.splitlines()
    assert lines[0] == "allreduce of 67108864 bytes, 4 ranks on 4 hosts"
    assert lines[1].startswith("algorithm: ring (")
    assert lines[2].endswith(" allreduce:32k-inf:ring:chunk=256k:ranks=2:hosts=2")
    assert lines[3] == "split:     64"
    assert lines[4].startswith("predicted: ")
    assert "(ethernet_10g)" in lines[4]
    assert lines[5] == "others:"
    assert [line.split()[0] for line in lines[6:9]] == [
        "recursive_doubling",
        "rabenseifner",
        "double_binary_tree",
    ]
    assert " times slower" in lines[6]
    assert "rank 2 of 4, ring allreduce, 256 chunks" in text
    assert "... and 704 steps more: see pycollective plan show" in text


def test_explain_draws_a_small_world_and_says_which_algorithms_are_not_for_it() -> None:
    text = pc.explain("allgather", nbytes=300, size=3)
    assert "recursive_doubling  not for 3 ranks" in text
    assert "round  rank 0" in text
    assert "(loopback)" in text
    assert "round  rank 0" not in pc.explain("allgather", nbytes=300, size=9)


def test_explain_follows_the_table_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_TUNE", "allreduce:0-inf:double_binary_tree:chunk=0")
    lines = pc.explain("allreduce", nbytes=8, size=4).splitlines()
    assert lines[1].startswith("algorithm: double_binary_tree")
    assert lines[2].endswith(" allreduce:0-inf:double_binary_tree:chunk=0")
    monkeypatch.setenv("PYCOLLECTIVE_TUNE", "allreduce:0-inf:rung")
    with pytest.raises(pc.InvalidArgument, match="there is no 'rung' for it"):
        pc.explain("allreduce", nbytes=8, size=4)


def test_explain_takes_the_link_that_is_specified() -> None:
    def predicted(model: str) -> str:
        lines = pc.explain("allreduce", nbytes=1 << 20, size=16, model=model).splitlines()
        return next(line for line in lines if line.startswith("predicted: "))

    assert "(ethernet_100g)" in predicted("ethernet_100g")
    assert predicted("ethernet_100g") != predicted("ethernet_10g")


def test_explain_of_a_world_too_large_to_walk_says_so_and_returns_soon() -> None:
    text = pc.explain("allreduce", nbytes=1 << 30, size=4000)
    assert "not here, the plans are too long: see pycollective plan simulate" in text
    assert "double_binary_tree" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"size": 0}, "size must be 1 to 65535"),
        ({"size": 1 << 40}, "size must be 1 to 65535"),
        ({"size": 4, "hosts": 5}, "hosts must be 1 to the number of ranks"),
        ({"size": 4, "root": 4}, "root 4 is no rank"),
        ({"size": 4, "rank": 4}, "rank 4 is no rank"),
        ({"size": 4, "rank": -1}, "rank must be 0 to 65535"),
        ({"size": 4, "nbytes": -1}, "nbytes must be 0 to"),
        ({"size": 4, "model": "pigeon"}, 'model "pigeon" is not one of loopback'),
    ],
)
def test_explain_refuses_worlds_that_cannot_be(words: dict[str, Any], says: str) -> None:
    with pytest.raises(pc.InvalidArgument, match=says):
        pc.explain("allreduce", **words)


def explained_twice() -> tuple[str, str]:
    own = pc.explain("allreduce", nbytes=8)
    return own, pc.explain("allreduce", nbytes=8, rank=0, model="ethernet_10g")


def test_explain_in_a_world_knows_its_ranks_and_transport() -> None:
    tcp = {"PYCOLLECTIVE_TRANSPORT": "tcp"}
    for rank, (own, other) in enumerate(testing.run(explained_twice, 2, env=tcp)):
        assert own.splitlines()[0] == "allreduce of 8 bytes, 2 ranks on 1 host"
        assert own.splitlines()[1].startswith("transport: ")
        assert f"rank {rank} of 2, recursive_doubling allreduce" in own
        assert "rank 0 of 2, recursive_doubling allreduce" in other
        assert "(ethernet_10g)" in other
        assert "round  rank 0" in own


def shared_explained() -> list[str]:
    return [pc.explain("allreduce", nbytes=nbytes) for nbytes in (8, 1000, 1 << 20)]


def test_explain_says_how_ranks_that_share_memory_do_it() -> None:
    inline, at_once, in_rounds = testing.run(shared_explained, 2)[0]
    for text in (inline, at_once, in_rounds):
        assert text.splitlines()[1] == "transport: shared memory"
    assert "inside the slot that announces the call" in inline
    assert "at once, through rings" in at_once
    assert "in rounds of 131072 bytes" in in_rounds


def test_a_table_of_algorithms_is_one_of_plans_also_on_one_host() -> None:
    inline = testing.run(shared_explained, 2, env={"PYCOLLECTIVE_TUNE": "allreduce:0-inf:ring"})[0][0]
    assert "transport: shm" in inline
    assert "algorithm: ring" in inline


def messages_explained() -> list[str]:
    return [pc.explain(name) for name in ("send", "recv", "sendrecv")]


@pytest.mark.parametrize(("transport", "way"), [("auto", "shared memory"), ("tcp", "tcp")])
def test_explain_says_which_way_messages_take(transport: str, way: str) -> None:
    texts = testing.run(messages_explained, 3, env={"PYCOLLECTIVE_TRANSPORT": transport})[1]
    assert texts[0] == texts[1] == texts[2]
    assert texts[0].splitlines()[:2] == ["messages of rank 1 of 3", f"{way}: with ranks 0, 2"]


def test_explain_asks_for_size_where_hosts_are_given_in_a_world() -> None:
    pc.init()
    try:
        with pytest.raises(pc.InvalidArgument, match="give size="):
            pc.explain("allreduce", hosts=2)
        assert pc.explain("allreduce", size=4).startswith("allreduce of 0 bytes, 4 ranks")
    finally:
        pc.shutdown()


def test_explain_of_arrays_on_gpus_says_that_it_is_unknown_before_the_first() -> None:
    pc.init()
    try:
        assert "allreduce of arrays on GPUs, 1 rank: not known yet" in pc.explain("allreduce", device="cuda")
        with pytest.raises(pc.InvalidArgument, match='device must be "cpu" or "cuda", not "tpu"'):
            pc.explain("allreduce", device="tpu")
        with pytest.raises(pc.InvalidArgument, match="by ranks that are there"):
            pc.explain("allreduce", device="cuda", size=2)
    finally:
        pc.shutdown()
