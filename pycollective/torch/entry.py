"""What `import torch` calls (entry point torch.backends). Installed beside the package as well, as pycollective_torch.

So a pycollective that cannot be imported never keeps torch from being imported. torch is half imported meanwhile.
"""

from __future__ import annotations

import warnings
from typing import Any


def register() -> None:
    """Make `init_process_group("pycollective")` known."""
    try:
        import torch.distributed as dist

        if dist.is_available() and not hasattr(dist.Backend, "PYCOLLECTIVE"):
            dist.Backend.register_backend("pycollective", _create, extended_api=True, devices=["cpu", "cuda"])
    except Exception as error:  # a torch that differs from those we know is imported all the same
        warnings.warn(f"torch.distributed does not know the backend pycollective: {error!r}", stacklevel=2)


def _create(options: Any, backend_options: object) -> Any:  # noqa: ANN401  torch's, and a ProcessGroup
    from pycollective.torch.process_group import ProcessGroupPycollective

    return ProcessGroupPycollective(options, backend_options)
