"""The entry point of `python -m pycollective.torch.auto`."""

import os
import sys

from pycollective.runtime.lifetime import KEY_FD

if sys.flags.hash_randomization and not os.environ.get("PYTHONHASHSEED"):
    # Python iterates a set of strings in a different order in each process, and a script may number
    # its words or files in that order. The hash seed must be equal on all ranks, but is fixed when
    # Python starts. Therefore Python is restarted with the same command and with the launcher's
    # key.
    if os.environ.get(KEY_FD, "").isdecimal():
        os.set_inheritable(int(os.environ[KEY_FD]), True)
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

from pycollective.torch.auto.script import main

main()
