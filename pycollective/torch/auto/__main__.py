"""`python -m pycollective.torch.auto`."""

import os
import sys

from pycollective.runtime.lifetime import KEY_FD

if sys.flags.hash_randomization and not os.environ.get("PYTHONHASHSEED"):
    # Every process orders sets of strings in its own way, and a script may number its words or files so. That is
    # settled when Python starts, so it starts again, as what it is: with the launcher's key, too.
    if os.environ.get(KEY_FD, "").isdecimal():
        os.set_inheritable(int(os.environ[KEY_FD]), True)
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

from pycollective.torch.auto.script import main

main()
