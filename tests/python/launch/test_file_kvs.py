"""The KVS in a folder that all ranks see."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_launcher import S, together

from pycollective.bootstrap.kvs.file import FileKvs
from pycollective.errors import CollectiveTimeout, InvalidArgument

pytestmark = pytest.mark.timeout(60)
SHORT = 0.05  # for calls that must time out
TEXT = "x" * 900


def file_kvs(path: Path, in_use: bool = False) -> FileKvs:
    return FileKvs(str(path), in_use=lambda text: in_use)


@pytest.mark.parametrize("folder", [True, False])
def test_a_file_hands_on_what_rank_0_writes_and_goes_away(tmp_path: Path, folder: bool) -> None:
    path = tmp_path if folder else tmp_path / "run"
    results = together(
        lambda: file_kvs(path).read("key", timeout_s=S),
        lambda: file_kvs(path).publish("key", TEXT, timeout_s=S),
    )
    assert results == [TEXT, None]
    (file,) = tmp_path.iterdir()
    assert file.name == ("key" if folder else "run.key")
    assert file.stat().st_mode & 0o777 == 0o600
    file_kvs(path).withdraw("key")
    assert list(tmp_path.iterdir()) == []
    file_kvs(path).withdraw("key")


def test_what_a_dead_run_has_left_is_replaced_and_a_live_run_is_not(tmp_path: Path) -> None:
    file_kvs(tmp_path).publish("key", "first", timeout_s=S)
    file_kvs(tmp_path).publish("key", "second", timeout_s=S)
    assert file_kvs(tmp_path).read("key", timeout_s=S) == "second"
    with pytest.raises(InvalidArgument, match=r"another run is starting at .*key right now"):
        file_kvs(tmp_path, in_use=True).publish("key", "third", timeout_s=S)
    assert file_kvs(tmp_path).read("key", timeout_s=S) == "second"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("left_behind", [False, True])
def test_of_runs_that_race_for_a_path_one_wins_and_the_others_are_informed(
    tmp_path: Path, left_behind: bool
) -> None:
    for _ in range(20):
        if left_behind:
            file_kvs(tmp_path).publish("key", "old", timeout_s=S)
        # A fresh card is in use, an old one is not.
        results = together(
            *(
                lambda text=text: FileKvs(str(tmp_path), lambda text: text != "old").publish(  # type: ignore[misc]
                    "key", text, timeout_s=S
                )
                for text in ("one", "two", "three")
            )
        )
        assert results.count(None) == 1, results
        assert all(result is None or isinstance(result, InvalidArgument) for result in results), results
        winner = ("one", "two", "three")[results.index(None)]
        assert file_kvs(tmp_path).read("key", timeout_s=S) == winner
        file_kvs(tmp_path).withdraw("key")
        assert list(tmp_path.iterdir()) == []


def test_a_card_that_takes_the_place_of_an_old_one_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_kvs(tmp_path).publish("key", "old", timeout_s=S)
    link = os.link

    def another_was_quicker(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        file_kvs(tmp_path).publish("key", "its card", timeout_s=S)
        link(source, target)

    monkeypatch.setattr(os, "link", another_was_quicker)
    with pytest.raises(InvalidArgument, match="another run is starting"):
        file_kvs(tmp_path).publish("key", "ours", timeout_s=S)
    assert file_kvs(tmp_path).read("key", timeout_s=S) == "its card"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_file_that_does_not_come_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(CollectiveTimeout, match=r"rank 0 has not written .*key in 0.05 s.*same path"):
        file_kvs(tmp_path).read("key", timeout_s=SHORT)
    with pytest.raises(InvalidArgument, match="rank 0 cannot write"):
        file_kvs(tmp_path / "no/such").publish("key", TEXT, timeout_s=S)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_believed(tmp_path: Path) -> None:
    file_kvs(tmp_path).publish("key", TEXT, timeout_s=S)
    os.chown(tmp_path / "key", 65534, -1)
    with pytest.raises(InvalidArgument, match=r"belongs to user 65534 and not to us"):
        file_kvs(tmp_path).read("key", timeout_s=S)


def test_a_file_that_others_can_read_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("text\n")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(InvalidArgument, match=r"can be read or written by others \(mode 0644\)"):
        file_kvs(tmp_path).read("key", timeout_s=S)
    (tmp_path / "link").symlink_to(tmp_path / "key")
    with pytest.raises(InvalidArgument, match="cannot read"):
        file_kvs(tmp_path).read("link", timeout_s=S)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidArgument, match="not a regular file"):
        file_kvs(tmp_path).read("folder", timeout_s=S)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InvalidArgument, match="not a regular file"):
        file_kvs(tmp_path).read("pipe", timeout_s=S)


def test_a_card_that_is_not_written_to_its_end_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "key").touch(0o600)
    with pytest.raises(CollectiveTimeout):
        file_kvs(tmp_path).read("key", timeout_s=SHORT)
