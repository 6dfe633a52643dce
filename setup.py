# pip uses the backend named in pyproject.toml; this file keeps `python setup.py build_ext --inplace` working.
# It needs: pip install -U "setuptools>=77" "scikit-build-core>=1.0" "pybind11>=3.0" cmake ninja
import scikit_build_core.setuptools  # noqa: F401  (setuptools ignores what it does not know: fail here instead)
from setuptools import find_packages, setup

setup(cmake_source_dir=".", packages=find_packages(include=["pycollective*"]))
