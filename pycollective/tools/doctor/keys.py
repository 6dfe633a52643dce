"""The possible sources of a job's key, and whether other users could read them.

Only the id of a key is shown, never the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pycollective.bootstrap import key_sources
from pycollective.bootstrap.key import key_id
from pycollective.errors import InvalidArgument
from pycollective.tools.doctor.check_result import CheckResult, fail, ok


def keys(env: Mapping[str, str]) -> list[CheckResult]:
    """Checks PYCOLLECTIVE_SECURITY, the file of PYCOLLECTIVE_KEY_FILE, and the user's own file."""
    lines = [_security(env)]
    if named := env.get(key_sources.FILE):
        lines.append(_file("key file", Path(named), "name a file of your own with the job's key"))
    users = key_sources.users_file(env)
    if users.exists() or users.is_symlink():
        return [*lines, _file("user's key file", users, f"remove {users}: it is made anew when it is needed")]
    return [*lines, ok("user's key file", f"there is no {users} yet: it is made when it is needed")]


def _security(env: Mapping[str, str]) -> CheckResult:
    try:
        words = key_sources.security(env)
    except InvalidArgument as error:
        return fail("security", str(error), f"{key_sources.SECURITY}=auth is the default")
    return ok("security", ", ".join(sorted(words)))


def _file(check: str, path: Path, instead: str) -> CheckResult:
    try:
        key = key_sources.read(path, str(path))
    except InvalidArgument as error:
        return fail(check, str(error), f"what the message says, or {instead}")
    return ok(check, f"{path}, key {key_id(key)}")
