"""torch on FAKE GPUs: tensors that claim to be there, and torch.cuda's streams, events and Futures.

torch is built for the CPU here. An operation of torch on such tensors is queued on the current
stream of the fake driver, and executed when that stream reaches it, so that missing order shows. An
operation in none of the lists here is refused. Every rank is a thread with a GPU of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import fake_gpu_tensors
import torch
from fake_gpu_tensors import CAPSULE_NAME, GpuTensor, WorkStream, fake_torch_api, make_capsule
from fake_gpus import Array, Gpu
from gpu_checking import DRIVERS

LEGACY = 0  # the default stream
current = threading.local()  # .streams: the current stream by GPU
libc = ctypes.CDLL(None)
NOT_READY = 600

# ---- streams and events


def gpu_of(ordinal: int) -> Gpu:
    """Returns the GPU, and makes its context that of this thread."""
    return Gpu(DRIVERS[0], ordinal)


class Stream:
    def __init__(self, device: Any = None, priority: int = 0, handle: int | None = None) -> None:
        self.device = torch.device(device)
        self.gpu = gpu_of(self.device.index)
        self.handle = self.gpu.stream() if handle is None else handle

    def record_event(self) -> Event:
        event = Event(self.device)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        assert event.device == self.device
        gpu_of(self.device.index)
        DRIVERS[0].call("cuStreamWaitEvent", ctypes.c_void_p(self.handle), event.at, 0)


class Event:
    def __init__(self, device: torch.device) -> None:
        self.device, self.at = device, ctypes.c_void_p()
        gpu_of(device.index)
        DRIVERS[0].call("cuEventCreate", ctypes.byref(self.at), 2)

    def record(self, stream: Stream) -> None:
        DRIVERS[0].call("cuEventRecord", self.at, ctypes.c_void_p(stream.handle))

    def query(self) -> bool:
        return DRIVERS[0].ask("cuEventQuery", self.at) != NOT_READY


def current_stream(device: Any) -> Stream:
    index = torch.device(device).index
    return Stream(device, handle=getattr(current, "streams", {}).get(index, LEGACY))


@contextlib.contextmanager
def stream(of: Stream) -> Iterator[None]:
    before = dict(getattr(current, "streams", {}))
    current.streams = before | {of.device.index: of.handle}
    try:
        yield
    finally:
        current.streams = before


# ---- queued work: fake_cuda_enqueue() with a closure. Calls under the driver's lock need no GIL

waiting: dict[int, Callable[[], None]] = {}
numbers = itertools.count(1)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def run_queued(number: int) -> None:
    waiting.pop(number)()


def enqueue(device: torch.device, operation: Callable[[], None]) -> None:
    number = next(numbers)
    waiting[number] = operation
    handle = current_stream(device).handle
    always = no_end = ctypes.cast(libc.getpid, ctypes.c_void_p)  # not 0
    answer = DRIVERS[0].library.fake_cuda_enqueue(
        ctypes.c_void_p(handle),
        always,
        ctypes.cast(run_queued, ctypes.c_void_p),
        no_end,
        ctypes.c_void_p(number),
    )
    assert answer == 0, answer


# ---- tensors

# Operations that return views of the same memory, or properties of the tensor.
LOOKS = {
    "__get__", "__getitem__", "__len__", "__repr__", "_is_view", "as_strided", "chunk", "data_ptr", "detach", "dim",
    "element_size", "flatten", "is_complex", "is_conj", "is_contiguous", "is_floating_point", "is_neg", "is_set_to",
    "item", "movedim", "narrow", "numel", "permute", "requires_grad_", "reshape", "resolve_conj", "resolve_neg", "size",
    "split", "storage_offset", "stride", "t", "tolist", "transpose", "unbind", "unsqueeze", "untyped_storage", "view",
    "view_as_real",
}  # fmt: skip
CHANGES = {"copy_", "fill_", "add_", "mul_", "zero_"}
MAKES = {"cat", "clone", "contiguous", "add", "mul", "__mul__", "__rmul__", "sum"}
recorded: list[tuple[int, int]] = []  # by record_stream(): memory, stream


@WorkStream
def current_work_stream(device_type: int, index: int, into: Any) -> int:
    assert device_type == 2
    into[0] = getattr(current, "streams", {}).get(index, LEGACY)
    return 0


class CudaTensor(GpuTensor):
    """FAKE. The results of its operations are on its GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", self.gpu)

    is_cuda = True  # type: ignore[assignment]

    def record_stream(self, used_on: Stream) -> None:  # type: ignore[override]
        recorded.append((self.data_ptr(), used_on.handle))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        name = function.__name__
        tensors = list(find(arguments))
        on_gpus = {tensor.gpu for tensor in tensors if isinstance(tensor, CudaTensor)}
        assert len(on_gpus) == 1, (name, on_gpus)
        (ordinal,) = on_gpus
        with torch._C.DisableTorchFunctionSubclass():
            if name == "new_empty":
                return on_gpu(ordinal, make_empty(*arguments[1:], dtype=arguments[0].dtype))
            if name == "contiguous" and arguments[0].is_contiguous():
                return arguments[0]
            if name in LOOKS:
                return wrap(ordinal, function(*arguments, **keywords or {}))
            if any(tensor.numel() and not isinstance(tensor, CudaTensor) for tensor in tensors):
                raise RuntimeError(f"Expected all tensors to be on the same device: {name}")
            plain = plainly(arguments)
            if name in CHANGES:
                enqueue(torch.device("cuda", ordinal), lambda: function(*plain, **keywords or {}))
                return arguments[0]
            assert name in MAKES, f"the fake has no {name}"
            made = on_gpu(ordinal, torch.full_like(function(*plain, **keywords or {}), 111))
            target = made.as_subclass(torch.Tensor)
            enqueue(torch.device("cuda", ordinal), lambda: target.copy_(function(*plain, **keywords or {})))
            return made


def find(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from find(each)


def plainly(value: Any) -> Any:
    """Returns the value as torch on the CPU sees it."""
    if isinstance(value, torch.Tensor):
        return value.detach().as_subclass(torch.Tensor)
    return type(value)(map(plainly, value)) if isinstance(value, list | tuple) else value


def wrap(ordinal: int, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value if isinstance(value, CudaTensor) else value.as_subclass(CudaTensor)
        value.gpu = ordinal
    elif type(value) in (list, tuple):
        return type(value)(wrap(ordinal, each) for each in value)
    return value


def on_gpu(ordinal: int, plain: torch.Tensor) -> CudaTensor:
    """Returns a copy in the memory of that GPU, which is complete at once."""
    values = plain.detach().contiguous().numpy()
    tensor = torch.from_numpy(Array(gpu_of(ordinal), values).host).as_subclass(CudaTensor)
    tensor.gpu = ordinal
    return tensor


def cuda_tensor(gpu: Gpu, values: Any) -> CudaTensor:
    return on_gpu(gpu.ordinal, values if isinstance(values, torch.Tensor) else torch.tensor(values))


API = fake_torch_api()
API.current_work_stream = current_work_stream
CudaTensor.__dlpack_c_exchange_api__ = make_capsule(ctypes.addressof(API), CAPSULE_NAME, None)  # type: ignore[attr-defined]

# ---- Futures of tensors on GPUs, which do what torch's own do in C++

make_future = torch.futures.Future.__init__
make_empty = torch.empty
set_result, wait, then = torch.futures.Future.set_result, torch.futures.Future.wait, torch.futures.Future.then


def future_init(self: Any, *, devices: Any = None) -> None:
    make_future(self)
    self.devices, self.events = [torch.device(each) for each in devices or []], {}


def future_set_result(self: Any, result: Any) -> None:
    tensors = find(result) if issubclass(type(result), (list, tuple, torch.Tensor)) else ()
    lies_on = {tensor.device for tensor in tensors if tensor.is_cuda}
    assert lies_on <= set(devices_of(self)), "a tensor lies on none of the Future's devices"
    if lies_on:
        self.events = {device: current_stream(device).record_event() for device in lies_on}
    set_result(self, result)


def devices_of(future: Any) -> list[torch.device]:
    return getattr(future, "devices", [])


def order_by(future: Any) -> None:
    for device, event in getattr(future, "events", {}).items():
        current_stream(device).wait_event(event)


def future_wait(self: Any) -> Any:
    value = wait(self)
    order_by(self)
    return value


def future_then(self: Any, callback: Any) -> Any:
    if not devices_of(self):
        return then(self, callback)
    child = torch.futures.Future(devices=devices_of(self))

    def called(_: Any) -> None:
        with contextlib.ExitStack() as streams:
            for device in devices_of(self):
                streams.enter_context(stream(Stream(device)))
            order_by(self)
            try:
                child.set_result(callback(self))
            except Exception as error:
                child.set_exception(error)

    then(self, called)
    return child


# ---- installation


def anywhere(make: Any) -> Any:
    """Wraps a function of torch so that it makes a tensor on any device."""

    def made(*shape: Any, device: Any = None, **keywords: Any) -> torch.Tensor:
        if device is None or torch.device(device).type != "cuda":
            return torch.as_tensor(make(*shape, device=device, **keywords))
        return on_gpu(torch.device(device).index, make(*shape, **keywords))

    return made


def play() -> None:
    """Installs the fakes in this process, for good."""
    cuda: Any = torch.cuda
    cuda.get_device_capability = lambda _: (9, 0)
    cuda.Stream, cuda.stream, cuda.current_stream = Stream, stream, current_stream
    future: Any = torch.futures.Future
    future.__init__, future.set_result, future.wait, future.then = (
        future_init, future_set_result, future_wait, future_then,
    )  # fmt: skip
    torch.empty, torch.zeros = anywhere(torch.empty), anywhere(torch.zeros)  # type: ignore[assignment]
    # torch's tensors on GPUs are no subclass, so torch.distributed checks none of them.
    torch.distributed.distributed_c10d.has_torch_function = lambda _: False  # type: ignore[attr-defined]
    assert fake_gpu_tensors.torch_api().minor >= 3
