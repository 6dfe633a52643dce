"""`pycollective tune`: measures this machine, and writes what is better here than the defaults into a profile.

- experiments: what is compared with what, for so many ranks
- ranks: the ranks' side, worlds that differ in one setting and are measured in turn
- decide: from times to settings; pure
- command: the whole, and what people see of it
"""
