"""libpmix through ctypes.

This module declares the calls and structures that a KVS needs, and finds the library.
"""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
from collections.abc import Iterator, Mapping
from ctypes import (
    POINTER,
    Structure,
    Union,
    byref,
    c_bool,
    c_byte,
    c_char,
    c_char_p,
    c_int,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
)

from pycollective.errors import Unsupported

NAME = "libpmix.so.2"
SUCCESS, ERR_TIMEOUT, ERR_NOT_FOUND, ERR_UNREACH = 0, -24, -46, -25
BOOL, STRING, INT = 1, 3, 6  # PMIX_BOOL, PMIX_STRING, PMIX_INT
GLOBAL = 3  # PMIX_GLOBAL: for processes on all hosts
TIMEOUT, REFRESH = b"pmix.timeout", b"pmix.get.refresh"


class Proc(Structure):
    _fields_ = (("namespace", c_char * 256), ("rank", c_uint32))


class Data(Union):
    _fields_ = (("string", c_char_p), ("flag", c_bool), ("integer", c_int), ("room", c_byte * 64))


class Value(Structure):
    _fields_ = (("type", c_uint16), ("data", Data))


class Info(Structure):
    _fields_ = (("key", c_char * 512), ("flags", c_uint32), ("value", Value))


def load(env: Mapping[str, str]) -> ctypes.CDLL:
    """Return libpmix of the launcher that started this process.

    Another version of the library would be incompatible with the launcher's server.
    """
    reasons = []
    for path, mode in candidates(env):
        try:
            return ctypes.CDLL(path, mode=mode)
        except OSError as error:
            reasons.append(str(error))
    raise Unsupported(
        f"mpirun started several processes (OMPI_COMM_WORLD_SIZE={env.get('OMPI_COMM_WORLD_SIZE', '?')}), and they can "
        f"join only through {NAME}, which cannot be loaded: {'; '.join(dict.fromkeys(reasons))}. Put the folder of the "
        f"{NAME} that belongs to your mpirun into LD_LIBRARY_PATH (mpirun -x LD_LIBRARY_PATH), or set PMIX_PREFIX"
    )


def candidates(env: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    yield NAME, os.RTLD_NOLOAD  # already loaded by mpi4py or another library of this process
    prefixes = [env[name] for name in ("PMIX_PREFIX", "OPAL_PREFIX") if env.get(name)]
    if (mpirun := shutil.which("mpirun", path=env.get("PATH"))) is not None:
        prefixes.append(os.path.dirname(os.path.dirname(os.path.realpath(mpirun))))
    for prefix in prefixes:
        # The loader searches these itself, and a recursive search would take seconds.
        if prefix in ("/", "/usr"):
            continue
        for found in sorted(glob.glob(f"{glob.escape(prefix)}/lib*/**/{NAME}", recursive=True)):
            yield found, ctypes.DEFAULT_MODE
    yield NAME, ctypes.DEFAULT_MODE
    for found in sorted(glob.glob(f"/usr/lib*/**/pmix2/lib/{NAME}", recursive=False)):
        yield found, ctypes.DEFAULT_MODE


def text_value(text: str) -> Value:
    value = Value()
    value.type = STRING
    value.data.string = text.encode()
    return value


def get_options(timeout_s: int) -> ctypes.Array[Info]:
    options = (Info * 2)()
    options[0].key, options[0].value.type, options[0].value.data.integer = TIMEOUT, INT, timeout_s
    options[1].key, options[1].value.type, options[1].value.data.flag = REFRESH, BOOL, True
    return options


class Calls:
    """The calls of libpmix, each of which returns a status code.

    They release the GIL. Ctrl-C takes effect only after the current call has returned.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def init(self, me: Proc) -> int:
        return int(self.library.PMIx_Init(byref(me), None, c_size_t(0)))

    def put(self, key: str, text: str) -> int:
        value = text_value(text)
        code = int(self.library.PMIx_Put(c_uint8(GLOBAL), c_char_p(key.encode()), byref(value)))
        return code or int(self.library.PMIx_Commit())

    def get(self, of: Proc, key: str, timeout_s: int) -> tuple[int, str]:
        found, options = POINTER(Value)(), get_options(timeout_s)
        code = int(
            self.library.PMIx_Get(
                byref(of), c_char_p(key.encode()), options, c_size_t(len(options)), byref(found)
            )
        )
        if code != SUCCESS or not found or found.contents.type != STRING:
            return code or ERR_NOT_FOUND, ""
        return SUCCESS, bytes(found.contents.data.string or b"").decode(errors="replace")

    def finalize(self) -> None:
        self.library.PMIx_Finalize(None, c_size_t(0))

    def why(self, code: int) -> str:
        self.library.PMIx_Error_string.restype = c_char_p
        words: bytes | None = self.library.PMIx_Error_string(c_int(code))
        return (words or b"").decode(errors="replace") or f"PMIx error {code}"
