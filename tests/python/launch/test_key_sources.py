"""The sources of the key, and which files are not trusted with one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pycollective.bootstrap.key import key_id
from pycollective.bootstrap.key_sources import must_agree, named_key, security, users_key
from pycollective.errors import InvalidArgument

KEY = bytes(range(32))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "the-key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    return path


def named(path: Path) -> bytes | None:
    found = named_key({"PYCOLLECTIVE_KEY_FILE": str(path)})
    return found and found[0]


@pytest.mark.parametrize("content", [KEY, KEY.hex().encode(), KEY.hex().upper().encode() + b"\n"])
@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_is_32_bytes_or_64_digits(file: Path, content: bytes, mode: int) -> None:
    file.write_bytes(content)
    file.chmod(mode)
    assert named(file) == KEY


def test_without_the_variable_no_file_is_named() -> None:
    assert named_key({}) is None
    assert named_key({"PYCOLLECTIVE_KEY_FILE": ""}) is None


@pytest.mark.parametrize("content", [b"", KEY[1:], KEY + b"\n", b"x" * 64, KEY.hex().encode()[1:], KEY * 40])
def test_what_is_no_key_is_refused_with_the_line_that_makes_one(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(
        InvalidArgument, match=r"PYCOLLECTIVE_KEY_FILE=.* holds no key.*head -c 32 /dev/urandom"
    ) as info:
        named(file)
    assert content.hex()[:20] not in str(info.value) or not content


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_a_file_that_others_can_touch_is_refused_with_the_chmod_line(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(InvalidArgument, match=rf"mode {mode:04o}.*chmod 600 {file}"):
        named(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(file: Path) -> None:
    os.chown(file, 65534, -1)
    with pytest.raises(InvalidArgument, match=rf"belongs to user 65534.*chown 0 {file}"):
        named(file)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path, message in (
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "no-such", "No such file"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            named(path)


def test_the_users_key_is_made_once_and_for_the_user_alone(tmp_path: Path) -> None:
    key, source = users_key({"XDG_CONFIG_HOME": str(tmp_path)})
    assert users_key({"XDG_CONFIG_HOME": str(tmp_path)}) == (key, source)
    path = tmp_path / "pycollective/key"
    assert source == f"the user's key file {path}"
    assert path.read_bytes() == key
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["key"]
    assert users_key({"HOME": str(tmp_path / "home")})[1].endswith("home/.config/pycollective/key")
    assert users_key({"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": "relative"})[1].endswith(
        "home/.config/pycollective/key"
    )


def test_the_users_key_is_checked_like_any_other(tmp_path: Path) -> None:
    users_key({"XDG_CONFIG_HOME": str(tmp_path)})
    (tmp_path / "pycollective/key").chmod(0o644)
    with pytest.raises(InvalidArgument, match="chmod 600"):
        users_key({"XDG_CONFIG_HOME": str(tmp_path)})


def test_a_home_that_cannot_be_written_is_said_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match=r"none can be kept at .*PYCOLLECTIVE_KEY_FILE"):
        users_key({"XDG_CONFIG_HOME": str(tmp_path / "file")})


def test_ranks_that_race_to_make_it_agree(tmp_path: Path) -> None:
    program = (
        "import sys; from pycollective.bootstrap.key_sources import users_key; sys.stdin.read(1);"
        "print(users_key({'XDG_CONFIG_HOME': sys.argv[1]})[0].hex())"
    )
    for attempt in range(3):
        home = str(tmp_path / str(attempt))
        pipe = subprocess.PIPE
        racers = [
            subprocess.Popen([sys.executable, "-c", program, home], stdin=pipe, stdout=pipe) for _ in range(6)
        ]
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.close()
        keys = set()
        for racer in racers:
            with racer:
                assert racer.stdout is not None
                keys.add(racer.stdout.read())
        assert len(keys) == 1
        assert len(keys.pop()) == 65
        assert os.listdir(f"{home}/pycollective") == ["key"]


def test_keys_that_differ_are_an_error_with_both_ids() -> None:
    must_agree(KEY, "a file", their_id=key_id(KEY), their_host="n0")
    with pytest.raises(
        InvalidArgument, match=rf"rank 0 on n0 has key 01234567.* has key {key_id(KEY)} from a file"
    ) as info:
        must_agree(KEY, "a file", their_id="01234567", their_host="n0")
    assert KEY.hex() not in str(info.value)


def test_the_words_of_security() -> None:
    assert security({}) == {"auth"}
    assert security({"PYCOLLECTIVE_SECURITY": "strict, encrypt"}) == {"strict", "encrypt"}
    with pytest.raises(
        InvalidArgument, match="PYCOLLECTIVE_SECURITY='stict': stict is not one of auth, encrypt, strict"
    ):
        security({"PYCOLLECTIVE_SECURITY": "stict"})
