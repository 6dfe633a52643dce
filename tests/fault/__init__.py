"""The fault-injection suite: worlds of real processes in which something goes wrong, and what must hold all the same.

Run it by `scripts/test fault`. limits.py says what a limit is, world.py how a world is made and supervised, rank.py
what its ranks can do, commands.py what they are told to do; each other module is one family of limits.
"""
