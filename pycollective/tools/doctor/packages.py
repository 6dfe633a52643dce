"""The installed packages, by their metadata, because importing some of them takes seconds."""

from __future__ import annotations

from importlib import metadata

from pycollective.tools.doctor.check_result import CheckResult, fail, ok, warn

LIBRARIES = ("numpy", "torch", "jax", "paddle", "cupy", "ml_dtypes")
DISTRIBUTIONS = {
    "cupy": ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"),
    "paddle": ("paddlepaddle", "paddlepaddle-gpu"),
}
# oldest supported versions, as in pyproject.toml
OLDEST = {"numpy": (1, 24), "torch": (2, 4), "jax": (0, 5), "paddle": (3, 3)}


def installed() -> dict[str, str]:
    """Returns the version of each installed package, by name."""
    found: dict[str, str] = {}
    for name in LIBRARIES:
        for distribution in DISTRIBUTIONS.get(name, (name,)):
            try:
                found.setdefault(name, metadata.version(distribution))
            except metadata.PackageNotFoundError:
                continue
    return found


def wheel_tag() -> str:
    """Returns the platform of the installed wheel, such as "cp311-cp311-linux_x86_64".

    Returns "" if pycollective was not installed from a wheel.
    """
    try:
        lines = (metadata.distribution("pycollective").read_text("WHEEL") or "").splitlines()
    except metadata.PackageNotFoundError:
        return ""
    return next((line.partition(": ")[2] for line in lines if line.startswith("Tag: ")), "")


def libraries(packages: dict[str, str]) -> list[CheckResult]:
    """Checks the array libraries: NumPy is required, all other libraries are optional."""
    lines = []
    if "numpy" not in packages:
        lines.append(fail("numpy", "is not installed", "pip install 'numpy>=1.24'"))
    for name, version in packages.items():
        oldest = OLDEST.get(name, (0,))
        wanted = ".".join(map(str, oldest))
        if _numbers(version) < oldest:
            say = fail if name == "numpy" else warn
            package = DISTRIBUTIONS.get(name, (name,))[0]
            lines.append(say(name, f"{version} is older than {wanted}", f"pip install '{package}>={wanted}'"))
        else:
            lines.append(ok(name, version))
    missing = [name for name in LIBRARIES if name not in packages and name != "numpy"]
    return [*lines, ok("other array libraries", f"not installed: {', '.join(missing)}")] if missing else lines


def _numbers(version: str) -> tuple[int, ...]:
    words = version.partition("+")[0].split(".")
    return tuple(int(word) for word in words if word.isdecimal())
