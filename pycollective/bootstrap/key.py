"""The 32-byte key of a job: made by whoever starts the ranks, handed over by an inherited descriptor, never shown."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets

KEY_BYTES = 32


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def key_id(key: bytes) -> str:
    """Tells keys apart without telling anything about them: for errors and logs."""
    return hashlib.blake2b(key, digest_size=16, person=b"pycollective-kid").digest()[:4].hex()


def job_id(text: bytes) -> bytes:
    """The job's public name: 16 bytes from what its ranks know. Made from a key, it tells nothing about it."""
    return hashlib.blake2b(text, digest_size=16, person=b"pycollective-job").digest()


def job_of_run(key: bytes) -> str:
    """The name of a job that was started with this key."""
    return job_id(key).hex()


def key_file(key: bytes) -> int:
    """A sealed file without a name that holds the key, for PYCOLLECTIVE_KEY_FD. The caller closes it."""
    fd = os.memfd_create("pycollective-key", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, key)
    fcntl.fcntl(
        fd,
        fcntl.F_ADD_SEALS,
        fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE,
    )
    return fd


def read_key(fd: int) -> bytes | None:
    """The key behind `fd`, or None if there is no key. It stays open, so that init() works again after shutdown()."""
    try:
        key = os.pread(fd, KEY_BYTES + 1, 0)
        if len(key) != KEY_BYTES:  # somebody else's file
            return None
        os.set_inheritable(fd, False)  # what this rank starts is not a rank
    except (OSError, OverflowError):  # OverflowError: no descriptor has such a number
        return None
    return key
