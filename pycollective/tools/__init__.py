"""What `pycollective` does beside `run`: measure, compare, tune, explain plans, look at a machine."""
