"""The function that `import torch` calls (entry point torch.backends).

This module is also installed beside the package, as pycollective_torch, so that a pycollective that
cannot be imported never prevents the import of torch. torch is only partly imported when it calls
register(), so register() imports nothing of pycollective unless PYCOLLECTIVE_REPLACES is set.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

PREFIX = "PYCOLLECTIVE_"
REPLACES = "PYCOLLECTIVE_REPLACES"
CALLERS = 5  # frames from the warning to the program's call of init_process_group()

Handler = Callable[..., Iterator[Any]]


def register() -> None:
    """Registers the backend, and support for launchers that do not set torch's variables."""
    try:
        import torch.distributed as dist

        if dist.is_available() and not hasattr(dist.Backend, "PYCOLLECTIVE"):
            dist.Backend.register_backend("pycollective", _create, extended_api=True, devices=["cpu", "cuda"])
            handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
            handlers["env"] = _or_launched(handlers["env"])
            handlers.update({scheme: _watchful(handler) for scheme, handler in handlers.items()})
            if os.environ.get(REPLACES):
                from pycollective.torch.replacing import replace_named

                replace_named(os.environ[REPLACES])
    except Exception as error:  # torch must be importable even if its version is unknown
        warnings.warn(f"torch.distributed does not know all of pycollective: {error!r}", stacklevel=2)


def _create(options: Any, backend_options: object) -> Any:  # noqa: ANN401  torch's, and a ProcessGroup
    from pycollective.torch.backend.process_group import ProcessGroupPycollective

    return ProcessGroupPycollective(options, backend_options)


def _watchful(handler: Handler) -> Handler:
    """Wraps a rendezvous handler: rank 0 then warns of unknown PYCOLLECTIVE_ variables.

    If the previous default group was ours, the wrapper also skips that group's store, which may
    still exist.
    """

    @functools.wraps(handler)
    def watching(*args: Any, **kwargs: Any) -> Iterator[Any]:  # noqa: ANN401
        servers = sys.modules.get("pycollective.torch.backend.store_servers")
        found = handler(*args, **kwargs) if servers is None else servers.rendezvous(handler, args, kwargs)
        for store_rank_size in found:
            if store_rank_size[1] == 0 and any(name.startswith(PREFIX) for name in os.environ):
                # pycollective may be impossible to import, and is not needed for the handler
                with contextlib.suppress(ImportError):
                    from pycollective.runtime.environment_names import warn_of_unknown

                    warn_of_unknown(stacklevel=CALLERS)
            yield store_rank_size

    return watching


def _or_launched(torchs: Handler) -> Handler:
    """Wraps torch's env:// handler: without RANK it uses variables of mpirun, mpiexec or srun."""

    @functools.wraps(torchs)
    def handler(url: str, timeout: timedelta = timedelta(minutes=30), **kwargs: Any) -> Iterator[Any]:  # noqa: ANN401
        if not os.environ.get("RANK") and "rank=" not in url:
            from pycollective.torch.backend.launched import rendezvous

            launched = rendezvous(timeout)
            if launched is not None:
                return launched
        return torchs(url, timeout=timeout, **kwargs)

    return handler
