"""Tensors of torch on a GPU. FAKE: a subclass with an exchange interface that claims so.

The torch installed here is built for the CPU.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np
import torch
from fake_gpus import Array, Gpu


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


FromObject = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
WorkStream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class ExchangeApi(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("tensor_from_object", FromObject),
        ("current_work_stream", WorkStream),
    ]


def torch_api() -> ExchangeApi:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ExchangeApi.from_address(get(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))


class GpuTensor(torch.Tensor):
    gpu: int
    streams: ClassVar[dict[int, int | None]] = {}  # by GPU


@FromObject
def tensor_from_object(tensor: GpuTensor, into: Any) -> int:
    answer = int(torch_api().tensor_from_object(tensor, into))
    into.contents.device_type, into.contents.device_index = 2, tensor.gpu
    return answer


@WorkStream
def current_work_stream(device_type: int, index: int, into: Any) -> int:
    assert device_type == 2
    into[0] = GpuTensor.streams.get(index)
    return 0


def fake_torch_api() -> ExchangeApi:
    api = ExchangeApi.from_buffer_copy(torch_api())
    api.tensor_from_object, api.current_work_stream = tensor_from_object, current_work_stream
    return api


API = fake_torch_api()
make_capsule = ctypes.pythonapi.PyCapsule_New
make_capsule.restype = ctypes.py_object
make_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
CAPSULE_NAME = b"dlpack_exchange_api"
GpuTensor.__dlpack_c_exchange_api__ = make_capsule(ctypes.addressof(API), CAPSULE_NAME, None)  # type: ignore[attr-defined]


def gpu_tensor(gpu: Gpu, values: Any) -> GpuTensor:
    filled = np.asarray(values)
    tensor = torch.from_numpy(Array(gpu, filled).host).as_subclass(GpuTensor)
    tensor.gpu = gpu.ordinal
    return tensor
