"""Sources of the job's key if the launcher provides none: PYCOLLECTIVE_KEY_FILE, the user's key."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from pycollective.bootstrap.key import KEY_BYTES, key_id, new_key
from pycollective.errors import InvalidArgument

FILE, SECURITY = "PYCOLLECTIVE_KEY_FILE", "PYCOLLECTIVE_SECURITY"
WORDS = ("auth", "encrypt", "strict")


def security(env: Mapping[str, str]) -> frozenset[str]:
    """Return the words of PYCOLLECTIVE_SECURITY. Ranks are authenticated whatever it contains."""
    words = frozenset(word.strip() for word in env.get(SECURITY, "").split(",") if word.strip())
    if unknown := sorted(words.difference(WORDS)):
        raise InvalidArgument(
            f"{SECURITY}={env[SECURITY]!r}: {', '.join(unknown)} is not one of {', '.join(WORDS)}"
        )
    return words or frozenset(("auth",))


def named_key(env: Mapping[str, str]) -> tuple[bytes, str] | None:
    """Return the key in PYCOLLECTIVE_KEY_FILE and its source, or None if that is not set."""
    if not env.get(FILE):
        return None
    path = Path(env[FILE])
    return read(path, f"{FILE}={path}"), f"{FILE}={path}"


def users_key(env: Mapping[str, str]) -> tuple[bytes, str]:
    """Return the default key, which all jobs of this user share, and its source.

    The key file is created at first use.
    """
    path = users_file(env)
    try:
        if not path.exists():
            make(path)
    except OSError as error:
        raise InvalidArgument(
            f"a job key is needed, and none can be kept at {path} on {socket.gethostname()}: {error.strerror}. Name a "
            f"file with 32 random bytes that all ranks can read in {FILE}"
        ) from None
    return read(path, str(path)), f"the user's key file {path}"


def users_file(env: Mapping[str, str]) -> Path:
    home = env.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(home):  # the XDG specification: a relative path counts as unset
        home = os.path.join(env.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir, ".config")
    return Path(home, "pycollective", "key")


def make(path: Path) -> None:
    """Create the key file. If several ranks race, all of them get the same key.

    The file is published by os.link(), which is atomic and fails if the file exists.
    """
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = path.with_name(f".key.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(new_key())
            file.flush()
            os.fsync(fd)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        os.unlink(fresh)


def read(path: Path, what: str) -> bytes:
    """Return the key in a file that only its owner can read.

    The file has 32 raw bytes or 64 hexadecimal digits.
    """
    here = f"{what} on {socket.gethostname()}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe must not block
    except OSError as error:
        raise InvalidArgument(f"{here}: the key cannot be read: {error.strerror}") from None
    try:
        check(os.fstat(fd), path, here)
        data = os.read(fd, 2 * KEY_BYTES + 3)
    finally:
        os.close(fd)
    if len(data) == KEY_BYTES:
        return data
    with contextlib.suppress(ValueError):
        digits = data.strip().decode("ascii")
        if len(digits) == 2 * KEY_BYTES and digits.isalnum():
            return bytes.fromhex(digits)
    raise InvalidArgument(
        f"{here} holds no key: it must have {KEY_BYTES} bytes, or {2 * KEY_BYTES} hexadecimal digits. Make one with "
        f"`(umask 077; head -c {KEY_BYTES} /dev/urandom > {path})`"
    )


def check(found: os.stat_result, path: Path, here: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InvalidArgument(f"{here} is not a regular file")
    if found.st_uid != os.geteuid():
        raise InvalidArgument(
            f"{here} belongs to user {found.st_uid}, and this process runs as {os.geteuid()}: a key must be one's own. "
            f"Run `chown {os.geteuid()} {path}`, or make a key of your own"
        )
    if found.st_mode & 0o077:
        raise InvalidArgument(
            f"{here} can be read by others (mode {stat.S_IMODE(found.st_mode):04o}): any user may have the key. Make a "
            f"new one, or if you trust all users of this host run `chmod 600 {path}`"
        )


def must_agree(own: bytes, source: str, *, their_id: str, their_host: str) -> None:
    if key_id(own) != their_id:
        raise InvalidArgument(
            f"the ranks have different keys: rank 0 on {their_host} has key {their_id}, this rank on "
            f"{socket.gethostname()} has key {key_id(own)} from {source}. Copy rank 0's file over it: "
            f"scp -p {their_host}:<its path> <this path>"
        )
