"""`pycollective tune`: measures this machine, and writes a profile of the settings it improves.

- experiments: the settings to compare, for each number of ranks
- ranks: the code that runs in the ranks; it measures worlds that differ in one setting, round-robin
- decide: pure functions from times to settings
- command: the whole command and its output
"""
