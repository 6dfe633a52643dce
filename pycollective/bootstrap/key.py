"""The 32-byte key of a job. The launcher creates it and passes it by an inherited descriptor.

The key is never displayed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets

KEY_BYTES = 32


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def key_id(key: bytes) -> str:
    """Return an identifier for errors and logs. It distinguishes keys without revealing them."""
    return hashlib.blake2b(key, digest_size=16, person=b"pycollective-kid").digest()[:4].hex()


def job_id(text: bytes) -> bytes:
    """Return the job's public name: 16 bytes derived from `text`.

    `text` may be a secret key: the name does not reveal it.
    """
    return hashlib.blake2b(text, digest_size=16, person=b"pycollective-job").digest()


def job_of_run(key: bytes) -> str:
    """Return the name of a job that was started with this key."""
    return job_id(key).hex()


def key_file(key: bytes) -> int:
    """Return a sealed, unnamed file with the key, for PYCOLLECTIVE_KEY_FD. The caller closes it."""
    fd = os.memfd_create("pycollective-key", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, key)
    fcntl.fcntl(
        fd,
        fcntl.F_ADD_SEALS,
        fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE,
    )
    return fd


def read_key(fd: int) -> bytes | None:
    """Return the key in the file of descriptor `fd`, or None if there is no key.

    The descriptor stays open, so that init() can read the key again after shutdown().
    """
    try:
        key = os.pread(fd, KEY_BYTES + 1, 0)
        if len(key) != KEY_BYTES:  # `fd` is another program's file
            return None
        # processes that this rank starts are not ranks and must not get the key
        os.set_inheritable(fd, False)
    except (OSError, OverflowError):  # OverflowError: `fd` exceeds the range of descriptors
        return None
    return key
