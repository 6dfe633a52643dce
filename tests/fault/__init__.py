"""The fault-injection suite: worlds of real processes in which something goes wrong.

The suite proves what must hold all the same. Run it by `scripts/test fault`. limits.py defines a
limit, world.py makes and supervises a world, rank.py has what its ranks can do, commands.py the
commands that they receive. Each other module is one family of limits.
"""
