"""One rank's side of a serving block: its two threads, and its pending calls.

The receiver thread takes every message and never waits for anything else. The server thread runs
the functions, one at a time, and sends their results. So answers are received while a function
runs, and two ranks may call each other at the same time. The first call_async() starts a thread
that completes the Futures. The first call_async() to the own rank starts a thread that runs such
calls.

The end has two steps. A rank that has finished its block sends "done": it makes no more calls. A
server that has received "done" from all ranks has answered every call, and sends "end". A receiver
that has received "end" from all other ranks has nothing left to receive. A block that fails sends
"failed" instead, which ends the block on all ranks. The receiver of a failed block drops later
messages until all other ranks have sent "failed" or "end". No function starts after that; a running
function is not waited for.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeAlias

from pycollective import _core
from pycollective.base.clock import Clock
from pycollective.errors import CollectiveError, CollectiveTimeout, InvalidArgument
from pycollective.objects.object_codec import Bytes
from pycollective.objects.remote_error import record_of, reraised
from pycollective.runtime.lifetime import LONGEST_S
from pycollective.training.remote_calls.futures import Futures, Pending, outcome_of
from pycollective.training.remote_calls.own import OwnCalls
from pycollective.training.remote_calls.rpc_channel import RpcChannel, RpcMessage, deserialize, serialize

__all__ = ["Service"]

# A function that takes the answer of a call, or None if the block has failed.
Arrival: TypeAlias = Callable[[RpcMessage | None], None]


class Service:
    """The state behind call() and serving().

    Thread-safety: any thread may call call() and call_async().
    """

    def __init__(
        self, group: _core.Group, functions: Mapping[str, Callable[..., Any]], tag: int, timeout_s: float
    ) -> None:
        self.group = group
        self.functions = functions
        self._timeout_s = timeout_s
        self._others = [rank for rank in range(group.size) if rank != group.rank]
        self._channel = RpcChannel(group, tag)
        self._numbers = itertools.count()
        self._function_lock = threading.RLock()  # held while a function runs
        self._runs_in: int | None = None  # id of the thread that holds _function_lock, or None
        # messages for the server thread
        self._inbox: queue.SimpleQueue[tuple[int, RpcMessage]] = queue.SimpleQueue()
        self._futures = Futures()
        self._own_calls = OwnCalls()
        self._changed = threading.Condition()  # guards the next three members
        self._calls: dict[tuple[int, int], Arrival] = {}  # by rank and number of the call
        self._leaving = False
        # the failure of the block, which makes a new exception for each thread; None if there is
        # none
        self._failure: Callable[[], Exception] | None = None
        self._over = threading.Event()
        self._receiver = threading.Thread(target=self._receive, name="pc-serving-receiver", daemon=True)

    def start(self) -> None:
        """Starts the threads: functions can run from here on."""
        self._receiver.start()
        threading.Thread(target=self._serve, name="pc-serving", daemon=True).start()

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], rank: int, timeout: float | None
    ) -> Any:  # noqa: ANN401
        """Calls the function on that rank, and returns its result."""
        clock = self._clock(timeout)
        if rank == self.group.rank:
            return self._run_here(name, args, kwargs, clock)
        self._refuse_if_served(name, rank)
        return self._ask(name, serialize((args, kwargs), f"call({name}): (args, kwargs)"), rank, clock)

    def call_async(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], rank: int, timeout: float | None
    ) -> Future[Any]:
        """Begins a call. Another thread completes its Future. Raises for an invalid call.

        The call is sent before this returns, so that calls to one rank run in the order in which
        they are made.
        """
        clock = self._clock(timeout)
        self._refuse_if_served(name, rank)
        is_own = rank == self.group.rank
        value = None if is_own else serialize((args, kwargs), f"call({name}): (args, kwargs)")
        what = f"call_async({name}, rank={rank}) on rank {self.group.rank}"
        with contextlib.ExitStack() as under_way:
            pending = self._futures.begin(what, clock, functools.partial(self._timed_out, name, rank, clock))
            under_way.callback(self._futures.end)
            arrive = functools.partial(self._arrive, pending, name, rank)
            number = under_way.enter_context(self._under_way(name, rank, arrive))
            if value is None:
                self._own_calls.add(what, functools.partial(self._run_pending, pending, name, args, kwargs))
            else:
                self._send(name, value, rank, number, clock)
            self._futures.await_outcome(pending, under_way.pop_all())
        return pending.future

    def _clock(self, timeout: float | None) -> Clock:
        return Clock(self._timeout_s if timeout is None else min(timeout, LONGEST_S))

    def _is_served(self) -> bool:
        """Returns whether this thread is running a function for a call."""
        return self._runs_in == threading.get_ident()

    def _run_here(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], clock: Clock) -> Any:  # noqa: ANN401
        if self._is_served():
            return self._run(name, args, kwargs, clock)
        with self._under_way(name, self.group.rank, lambda _: None):
            if not self._own_calls.wait_for_earlier(clock):
                raise self._timed_out(name, self.group.rank, clock)
            self._refuse_if_failed()
            return self._run(name, args, kwargs, clock)

    def _run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], clock: Clock) -> Any:  # noqa: ANN401
        with self._alone(name, clock):
            self._refuse_if_failed()
            return self.functions[name](*args, **kwargs)

    def _run_pending(
        self, pending: Pending, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Runs a queued call to the own rank, unless it has timed out or the block has failed."""
        with self._alone(name, Clock(None)):
            if self._failure is not None or not self._futures.claim(pending):
                return
            outcome = outcome_of(functools.partial(self.functions[name], *args, **kwargs))
        self._futures.give(pending, outcome)

    def _arrive(self, pending: Pending, name: str, rank: int, message: RpcMessage | None) -> None:
        """Queues the answer for its Future. Never waits, because the receiver thread calls it."""
        if self._futures.claim(pending):
            self._futures.give(pending, functools.partial(self._read, name, rank, message))

    def _refuse_if_served(self, name: str, rank: int) -> None:
        if self._is_served():
            raise InvalidArgument(
                f"call({name}, rank={rank}) inside a function that is being served: that rank may be waiting for this "
                "one. Return first, or let the caller make both calls"
            )

    def _ask(self, name: str, value: Bytes, rank: int, clock: Clock) -> Any:  # noqa: ANN401
        answer: queue.SimpleQueue[RpcMessage | None] = queue.SimpleQueue()
        with self._under_way(name, rank, answer.put) as number:
            self._send(name, value, rank, number, clock)
            try:
                message = answer.get(timeout=clock.left_s())
            except queue.Empty:
                raise self._timed_out(name, rank, clock) from None
            return self._read(name, rank, message)

    def _send(self, name: str, value: Bytes, rank: int, number: int, clock: Clock) -> None:
        try:
            self._channel.send(rank, RpcMessage("call", number, name, value), clock.left_s())
        except CollectiveTimeout:
            raise self._timed_out(name, rank, clock) from None

    def _read(self, name: str, rank: int, message: RpcMessage | None) -> Any:  # noqa: ANN401
        if message is None:
            self._check(name)
        assert message is not None
        result = deserialize(message.value)
        if message.kind == "error":
            raise reraised(result, rank)
        return result

    def leave(self) -> None:
        """Waits until all ranks have called this. Raises the failure of any of them."""
        with self._changed:
            self._leaving = True
            self._changed.wait_for(lambda: self._failure is not None or not self._calls)
        if self._failure is None:
            for peer in self._others:
                self._channel.send(peer, RpcMessage("done"))
            self._inbox.put((self.group.rank, RpcMessage("done")))
            self._over.wait()
        if self._failure is not None:
            raise self._failure()

    def close(self) -> None:
        """Ends call_async()'s threads after the block. They may first report its failure."""
        self._own_calls.close()
        self._futures.close()

    def fail(self, error: BaseException) -> None:
        """Ends the block on all ranks, which raise the error.

        This does not wait for a running function.
        """
        words = record_of(error)
        self._fail_with(reraised, words, self.group.rank)
        message = RpcMessage("failed", value=serialize(words, "error"))
        for peer in self._others:
            with contextlib.suppress(CollectiveError):  # `error` is raised, and not a failure to send it
                self._channel.send(peer, message)

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise self._failure()

    def _check(self, name: str) -> None:
        self._refuse_if_failed()
        if self._leaving:
            raise InvalidArgument(f"call({name}): this rank is leaving its block of `with pc.serving(...)`")

    @contextlib.contextmanager
    def _under_way(self, name: str, rank: int, arrive: Arrival) -> Iterator[int]:
        """Registers a call and yields its number. `arrive` gets the answer if it is in time."""
        key = rank, next(self._numbers)
        with self._changed:
            self._check(name)
            self._calls[key] = arrive
        try:
            yield key[1]
        finally:
            with self._changed:
                del self._calls[key]
                self._changed.notify_all()

    def _timed_out(self, name: str, rank: int, clock: Clock) -> CollectiveTimeout:
        then = "It may run there all the same; its result is dropped"
        if rank == self.group.rank:
            then = (
                "It has not run and will not: functions that were called before it took that long. Allow it more time "
                "by timeout="
            )
        return CollectiveTimeout(
            f"call({name}, rank={rank}) on rank {self.group.rank} gave up after {clock.elapsed_s():.3g} s. {then}",
            rank=self.group.rank,
            peer=rank,
            operation=f"call({name})",
            elapsed_s=clock.elapsed_s(),
        )

    @contextlib.contextmanager
    def _alone(self, name: str, clock: Clock) -> Iterator[None]:
        """Holds the lock for running a function, and refuses calls on several ranks meanwhile.

        Such calls would wait forever, because the other ranks do not make them.
        """
        if not self._function_lock.acquire(timeout=-1 if (left_s := clock.left_s()) is None else left_s):
            raise self._timed_out(name, self.group.rank, clock)
        outer, self._runs_in = self._runs_in, threading.get_ident()
        _core._begin_alone(f"{name}(), which is being served")
        try:
            yield
        finally:
            _core._end_alone()
            self._runs_in = outer
            self._function_lock.release()

    def _receive(self) -> None:
        try:
            ended: set[int] = set()
            while len(ended) < len(self._others):
                source, message = self._channel.receive()
                if message.kind in ("call", "done"):
                    self._inbox.put((source, message))
                elif message.kind in ("answer", "error"):
                    with self._changed:
                        arrive = self._calls.get((source, message.number))
                    if arrive is not None:
                        arrive(message)
                else:
                    ended.add(source)
                    if message.kind == "failed":
                        self._fail_with(reraised, deserialize(message.value), source)
        except Exception as error:
            self._fail_with(copy.copy, error)

    def _fail_with(self, make: Callable[..., Exception], *args: Any) -> None:  # noqa: ANN401
        """Ends all calls of this rank with the error `make(*args)`, or with an earlier failure."""
        with self._changed:
            if self._failure is None:
                self._failure = functools.partial(make, *args)
            for arrive in self._calls.values():
                arrive(None)
            self._changed.notify_all()
        self._own_calls.close()
        self._inbox.put((self.group.rank, RpcMessage("failed")))
        self._over.set()

    def _serve(self) -> None:
        try:
            done = 0
            while done < self.group.size and self._failure is None:
                done += self._take(*self._inbox.get())
            if self._failure is None:
                for peer in self._others:
                    self._channel.send(peer, RpcMessage("end"))
                self._receiver.join()
                self._over.set()
        except Exception as error:
            self._fail_with(copy.copy, error)

    def _take(self, source: int, message: RpcMessage) -> bool:
        """Handles a message. Returns whether it is the "done" of a rank."""
        if message.kind == "call":
            # the caller exists, but does not receive the answer in time
            with contextlib.suppress(CollectiveTimeout):
                self._channel.send(source, self._answer(message))
        return message.kind == "done"

    def _answer(self, message: RpcMessage) -> RpcMessage:
        name = message.name
        try:
            if name not in self.functions:
                raise InvalidArgument(f"call: {name!r} is not served")
            args, kwargs = deserialize(message.value)
            # The lock is also held while the result is encoded, because the next call may change
            # it.
            with self._alone(name, Clock(None)):
                self._refuse_if_failed()
                value = serialize(self.functions[name](*args, **kwargs), f"the result of {name}()")
            return RpcMessage("answer", message.number, value=value)
        except BaseException as error:  # sent to the caller, which raises it
            return RpcMessage("error", message.number, value=serialize(record_of(error), "error"))
