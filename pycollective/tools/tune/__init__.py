"""`pycollective tune`: measures this machine, and writes a profile of the settings it improves.

- experiments: the settings to compare, for each number of ranks
- ranks: runs in the ranks; measures worlds that differ in one setting, round-robin
- decide: from times to settings; pure
- command: the whole command and its output
"""
