# pip uses the backend named in pyproject.toml. This file keeps `python setup.py build_ext
# --inplace` working. It needs: pip install -U "setuptools>=77" "scikit-build-core>=1.0"
# "pybind11>=3.0" cmake ninja
import re
from pathlib import Path

import scikit_build_core.setuptools  # noqa: F401  (setuptools ignores what it does not know: fail here instead)
from setuptools import find_packages, setup

found = re.search(
    r'^__version__ = "(.+)"$',
    Path(__file__).with_name("pycollective").joinpath("_version.py").read_text(),
    re.M,
)
if found is None:
    raise SystemExit("pycollective/_version.py: no __version__")
setup(
    version=found[1],
    cmake_source_dir=".",
    packages=find_packages(include=["pycollective*"]),
    package_data={"pycollective": ["py.typed", "*.pyi"]},
)
