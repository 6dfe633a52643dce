"""The fault-injection suite: worlds of real processes in which something goes wrong, and what must hold all the same.

Run it by `scripts/test fault`. bars.py says what a bar is, world.py how a world is made and supervised, rank.py what
its ranks can do, orders.py what they are told to do; each other module is one family of bars.
"""
