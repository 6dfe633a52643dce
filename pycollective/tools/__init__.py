"""The commands of `pycollective` besides `run`: bench, compare, tune, plan, doctor."""
