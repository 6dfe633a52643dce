"""The platforms that wheels are for."""

from __future__ import annotations

from dataclasses import dataclass

GLIBC = "2.28"  # the oldest with a wheel tag that has memfd_create (2.27) and getrandom (2.25)


@dataclass(frozen=True)
class Target:
    """One platform: its names for the compiler, Debian and wheels."""

    machine: str
    debian: str

    @property
    def name(self) -> str:
        return f"manylinux_{self.machine}"

    @property
    def platform(self) -> str:
        return f"linux_{self.machine}"

    @property
    def compiler(self) -> str:
        return f"{self.machine}-linux-gnu.{GLIBC}"

    @property
    def tag(self) -> str:
        return f"manylinux_{GLIBC.replace('.', '_')}_{self.machine}"


TARGETS = {target.name: target for target in (Target("x86_64", "amd64"), Target("aarch64", "arm64"))}
