"""The driver: runs the trials of every family and prints each limit with its figure."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from types import ModuleType

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy would start threads, and we fork

from . import absence, connection_flood, death, interruption, leaving, mismatch, simulation, stopping, threads
from .limits import Ledger, judge, print_slow, print_table
from .world import Broken, Hang, adopt_orphans

FAMILIES = (mismatch, death, interruption, stopping, absence, simulation, threads, leaving, connection_flood)
MOST_HANGS = 5  # of one family, after which the rest of it is skipped


def run_family(family: ModuleType, options: argparse.Namespace) -> Ledger:
    quick = " --quick" if options.quick else ""
    ledger = Ledger(f"scripts/test fault{quick} --seed {options.seed} --only {family.NAME} --trial '{{}}'")
    began = time.monotonic()
    with family.trials(options.quick, options.seed) as trials:
        for trial in trials:
            if options.trial and trial.name != options.trial:
                continue
            ledger.begin(trial.name)
            if options.verbose:
                print(f"{time.monotonic() - began:8.3f} {family.NAME} {trial.name}", flush=True)
            try:
                trial.run(ledger)
            except (Hang, Broken) as error:
                ledger.fault("hang", f"{type(error).__name__}: {error}")
                if ledger.faults["hang"] >= MOST_HANGS:
                    print(f"{family.NAME}: {MOST_HANGS} hangs and crashes; the rest is not tried", flush=True)
                    break
    print(f"{family.NAME}: {ledger.trials} trials in {time.monotonic() - began:.1f} s", flush=True)
    return ledger


def main() -> int:
    names = [family.NAME for family in FAMILIES]
    parser = argparse.ArgumentParser(prog="scripts/test fault", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sample of the trials, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1, help="what the trials are drawn by (1)")
    parser.add_argument("--only", choices=names, action="append", help="this family; may be repeated")
    parser.add_argument("--trial", help="only the trial of this name")
    parser.add_argument("--verbose", action="store_true", help="say what is being tried")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that worlds are ended
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    for name in [name for name in os.environ if name.startswith("PYCOLLECTIVE_")]:
        del os.environ[name]
    adopt_orphans()
    print(f"fault: seed {options.seed}{', quick' if options.quick else ''}", flush=True)

    rows, failed, tried = [], 0, 0
    for family in FAMILIES:
        if options.only and family.NAME not in options.only:
            continue
        ledger = run_family(family, options)
        tried += ledger.trials
        if not ledger.trials:
            continue
        for limit in family.LIMITS:
            print_slow(limit, ledger)
            bound, measured, holds = judge(limit, ledger)
            if options.trial and measured == "not measured":
                continue
            failed += not holds
            rows.append((family.NAME, limit.name, bound, measured, "yes" if holds else "NO"))
    if options.trial and not tried:
        print(f"fault: there is no trial {options.trial!r} in this sample", file=sys.stderr)
        return 2
    print()
    print_table(rows)
    print(
        f"fault: {failed} of {len(rows)} limits do not hold"
        if failed
        else f"fault: all {len(rows)} limits hold"
    )
    return 1 if failed else 0


sys.exit(main())
