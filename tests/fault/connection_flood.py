"""A thousand foreign connections at every listener: ranks still join, and no trace remains.

A join is measured from the last rank's call of init() until init() has returned on every rank. The
other ranks wait in their own init() meanwhile, and the flood occupies the store's port and that of
every rank to which other ranks connect. Both data and control connections use these ports. Joins
without a flood are made before, in the same world, and measure what a join costs here.

The store closes connections that send nonsense at once, before the join. The kinds that reconnect
show the effect of a thousand of these. At the ranks they wait until all have joined. Limits for
those that reconnect, and for those that sent a hello, are wider, because they occupy the processors
that the ranks need. The 99th percentile of a few joins depends on the load of the machine, so with
--quick the median of each kind counts.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial

from .commands import Call, complaint, enter, must_work, run_commands
from .flood_process import flood
from .limits import Ledger, Limit, Trial, percentile
from .world import PATIENCE_S, Event, Hang, World

NAME = "connection_flood"
LIMITS = (
    Limit("the last rank's init, no flood", "alone", 0.1, "p99"),
    Limit("the last rank's init, 1000 idle, garbage or half-open", "join", 0.1, "p99"),
    Limit("the last rank's init, 1000 that reconnect at once", "flood", 0.25, "p99"),
    Limit("the last rank's init, 1000 that replay a hello", "overheard", 0.25, "p99"),
    Limit("memory that the flood took at its most", "memory", 4096, "max", "KiB"),
    Limit("descriptors kept when they have left", "kept"),
    Limit("joins that ended otherwise", "otherwise"),
    Limit("groups that were not usable", "unusable"),
    Limit("floods of less than a thousand at each listener", "short"),
    Limit("hangs and crashes", "hang"),
)
SIZE = 3
LAST = SIZE - 1
CONNECTIONS = 1000  # at each listener
DESCRIPTORS = 8192  # that each process may have: the flooding process needs them
WARM_UPS = 3
FULL, QUICK = 40, 4  # joins of each kind
GONE_S = 2.0  # for a rank to notice that the flood has ended
INIT_S = 20.0
ROLE, RANK, EPOCH = 5, slice(8, 20), slice(20, 24)  # of a hello, docs/protocol.md section 1
CONTROL = 2


@dataclass(frozen=True)
class Kind:
    name: str
    words: str  # what each of them sends as soon as it is connected
    limit: str
    comes_back: bool = False  # reconnects whenever it is closed

    @property
    def stays(self) -> bool:
        """Whether it stays connected, because the store has room and does not close it at once."""
        return self.words in ("nothing", "half a hello", "a hello")


KINDS = (
    Kind("idle", "nothing", "join"),
    Kind("half-open", "half a hello", "join"),
    Kind("garbage", "garbage", "join"),
    Kind("lengths-of-4-GiB", "lengths", "join"),
    Kind("idle-and-back", "nothing", "flood", comes_back=True),
    Kind("garbage-and-back", "garbage", "flood", comes_back=True),
    Kind("overheard", "a hello", "overheard"),
    Kind("overheard-and-back", "a hello and no proof", "overheard", comes_back=True),
)


def words_of(kind: Kind, hello: bytes, listener: str, epoch: int, rng: random.Random) -> bytes:
    """Returns what a connection of this kind sends to the store or to a rank.

    `hello` is what a rank has sent to the store.
    """
    said = bytearray(hello)
    said[EPOCH] = epoch.to_bytes(4, "little")
    if listener != "store":  # to ranks it claims to be the last rank, and requests the costlier connection
        said[ROLE] = CONTROL
        said[RANK] = b"".join(n.to_bytes(4, "little", signed=True) for n in (LAST, -1, SIZE))
    return {
        "nothing": b"",
        "half a hello": bytes(said[: len(said) // 2]),
        "a hello": bytes(said),
        "garbage": rng.randbytes(4096),
        "lengths": b"\xff" * 4096,
        "a hello and no proof": bytes(said) + rng.randbytes(32),
    }[kind.words]


# ---- what the system reports about a process


def memory_kib(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name + ":"))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def listening(pid: int) -> list[tuple[str, int]]:
    """Returns the addresses on which this process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    found = []
    with open("/proc/net/tcp") as table:
        for line in table:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                ip, port = words[1].split(":")
                found.append((".".join(str(each) for each in reversed(bytes.fromhex(ip))), int(port, 16)))
    return found


# ---- one world and its flood


@dataclass
class Scene:
    kind: Kind
    world: World
    flood_world: World
    ledger: Ledger
    rng: random.Random
    hello: bytes = b""
    joins: int = 0  # which is the epoch
    descriptors: dict[int, int] = field(default_factory=dict)  # of each rank in a world without a flood
    inside: list[int] = field(default_factory=list)  # at the least flooded listener, before each join
    tried: int = 0  # connections
    took: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # joins, by limit

    @property
    def store(self) -> tuple[str, int]:
        host, _, port = self.world.address.rpartition(":")
        return host, int(port)

    def overhear(self) -> None:
        """Lets the flood listen at the store's address and record what a rank sends to it."""
        self.flood_world.send(["overhear", *self.store])
        self.flood_world.expect("listens")
        enter(self.world, Call("init", timeout=0.3), [LAST])
        self.hello = bytes.fromhex(self.flood_world.expect("overheard")[0]["hello"])
        self.world.expect("outcome", [LAST])

    def gather(self) -> dict[str, tuple[str, int]]:
        """All ranks but the last wait for it in init().

        Returns the addresses of the store and each rank.
        """
        waiting = list(range(LAST))
        enter(self.world, Call("init", timeout=INIT_S), waiting)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            found = {rank: set(listening(self.world.ranks[rank].pid)) - {self.store} for rank in waiting}
            if all(len(addresses) == 1 for addresses in found.values()):
                self.world.until_blocked(waiting)
                return {"store": self.store, **{f"rank {rank}": each.pop() for rank, each in found.items()}}
            self.world.pause(0.001)
        raise Hang(f"ranks {waiting} do not listen\n{self.world.stacks(waiting)}")

    def join(self, key: str) -> None:
        enter(self.world, Call("init", timeout=INIT_S), [LAST])
        ended = self.world.expect("outcome")
        self.joins += 1
        self.took[key].append(max(event["ended"] for event in ended.values()) - ended[LAST]["began"])
        for rank, event in ended.items():
            what = complaint_of(event)
            self.ledger.require("otherwise", not what, f"{self.kind.name}: rank {rank} {what}: {event.facts}")

    def begin_flood(self, listeners: dict[str, tuple[str, int]]) -> None:
        targets = [
            (*address, words_of(self.kind, self.hello, name, self.joins, self.rng).hex())
            for name, address in listeners.items()
        ]
        self.flood_world.send(["come", CONNECTIONS, self.kind.comes_back, *targets])
        self.flood_world.expect("there")
        counted = self.count()
        # The store closes connections that send nonsense. Ranks accept none before all have joined.
        lasting = counted["inside"][0 if self.kind.stays else 1 :]
        self.inside.append(min(lasting))
        self.ledger.require("short", min(lasting) >= CONNECTIONS, f"{self.kind.name}: {counted}")

    def count(self) -> Event:
        self.flood_world.send(["count"])
        return self.flood_world.expect("counted")[0]

    def end_flood(self) -> None:
        self.tried += sum(self.count()["tried"])
        self.flood_world.send(["leave"])
        self.flood_world.expect("left")
        until = time.monotonic() + GONE_S
        while (kept := self.kept()) and time.monotonic() < until:
            self.world.pause(0.001)
        for rank, number in kept.items():
            self.ledger.fault("kept", f"{self.kind.name}: rank {rank} keeps {number} descriptors")

    def kept(self) -> dict[int, int]:
        """Returns, by rank, how many more descriptors it has than in a world without a flood."""
        now = {rank: descriptors(each.pid) for rank, each in self.world.ranks.items()}
        return {rank: now[rank] - before for rank, before in self.descriptors.items() if now[rank] > before}

    def part(self) -> None:
        self.world.send(["call", asdict(Call("shutdown"))])
        self.world.expect("enters")
        self.world.expect("outcome")


def complaint_of(event: Event) -> str:
    return "" if event["raised"] is None else complaint(event, "nothing", None)


def join_alone(scene: Scene, key: str) -> None:
    scene.gather()
    scene.join(key)
    must_work(scene.world, scene.ledger, resync=False, what=scene.kind)
    scene.descriptors = {rank: descriptors(each.pid) for rank, each in scene.world.ranks.items()}
    scene.part()


def join_in_flood(scene: Scene) -> None:
    scene.begin_flood(scene.gather())
    scene.join(scene.kind.limit)
    must_work(scene.world, scene.ledger, resync=False, what=scene.kind)  # some are still at the store
    scene.end_flood()
    must_work(scene.world, scene.ledger, resync=False, what=scene.kind)
    scene.part()


def run(kind: Kind, joins: int, seed: int, ledger: Ledger) -> None:
    with World(1, flood) as flood_world, World(SIZE, run_commands) as world:
        scene = Scene(kind, world, flood_world, ledger, random.Random(f"{seed}/{NAME}/{kind.name}"))
        scene.overhear()
        for number in range(WARM_UPS + joins):
            join_alone(scene, "alone" if number >= WARM_UPS else "warm-up")
        before = {rank: memory_kib(each.pid, "VmHWM") for rank, each in world.ranks.items()}
        for _ in range(joins):
            join_in_flood(scene)
        for key, took in scene.took.items():
            for seconds in took if joins == FULL else [percentile(took, 0.5)]:
                ledger.measure(key, seconds)
        for rank, each in world.ranks.items():
            ledger.measure("memory", memory_kib(each.pid, "VmHWM") - before[rank])
        inside, tried = min(scene.inside), scene.tried
        print(
            f"{NAME}: {kind.name}: at least {inside} inside, {tried} connections for {joins} joins",
            flush=True,
        )


@contextlib.contextmanager
def trials(quick: bool, seed: int) -> Iterator[Iterator[Trial]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(before[0], min(before[1], DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    joins = QUICK if quick else FULL
    try:
        yield (Trial(kind.name, partial(run, kind, joins, seed)) for kind in KINDS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
