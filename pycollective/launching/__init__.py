"""Starts ranks for `pycollective run` and pc.run(), and monitors them until all have ended."""
