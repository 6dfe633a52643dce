"""PyTorch's own DistributedTest, out of its wheel, against the backend that BACKEND names.

    BACKEND=pycollective WORLD_SIZE=2 TEMP_DIR=$(mktemp -d) \
        pytest -c /dev/null --noconftest runner.py

test_distributed_suite.py starts it. BACKEND=gloo gives what torch's own backend passes.
"""

import os
from pathlib import Path

import torch
from torch.testing._internal import common_distributed

import pycollective.torch.backend.process_group  # noqa: F401  so that the ranks have it: they are forks

for feature in ("gpu", "cuda", "ddp", "subgroup", "plugin"):  # where torch lists the names of backends
    common_distributed.DistTestCases.backend_feature[feature].add(os.environ["BACKEND"])
for folder in ("barrier", "test_dir", "init_dir"):  # the suite makes them once, and they are needed again
    Path(os.environ["TEMP_DIR"], folder).mkdir()

from torch.testing._internal.distributed import distributed_test  # noqa: E402


class TestDistBackend(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        # Upstream spawns them, and then each imports torch anew, which takes ten times as long as a
        # test.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)
