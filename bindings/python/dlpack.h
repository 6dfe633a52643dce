// The part of the DLPack ABI that bindings/arrays uses. By DLPack, array libraries describe memory
// to each other. Layouts follow dmlc/dlpack v1.3, include/dlpack/dlpack.h, Copyright (c) 2017 by
// Contributors, Apache-2.0.
#pragma once

#include <cstdint>

namespace pc::dlpack {

inline constexpr uint32_t kMajorVersion = 1;  // another major version has another layout
inline constexpr uint32_t kMinorWithStreams = 3;
inline constexpr uint64_t kFlagReadOnly = 1, kFlagCopied = 2;
inline constexpr const char* kExchangeCapsule = "dlpack_exchange_api";
inline constexpr const char* kVersionedCapsule = "dltensor_versioned";
inline constexpr const char* kLegacyCapsule = "dltensor";

enum DeviceCode : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3 };
enum TypeCode : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4M3FN = 10,
  kFloat8E5M2 = 12
};

struct Version {
  uint32_t major, minor;
};
struct Device {
  int32_t type, index;
};
struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; before 1.2 null means contiguous
  uint64_t byte_offset;
};
struct LegacyManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(LegacyManagedTensor*);
};
struct ManagedTensor {
  Version version;
  void* context;
  void (*deleter)(ManagedTensor*);
  uint64_t flags;
  Tensor tensor;
};
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;
  void* allocate;
  int (*managed_from_object)(void* object, ManagedTensor** out);
  void* managed_to_object;
  int (*tensor_from_object)(void* object, Tensor* out);  // may be null; the object keeps the memory alive
  // Returns the stream on which the library works now in this thread. Since 1.3.
  int (*current_work_stream)(int32_t device_type, int32_t device_index, void** out);
};

}  // namespace pc::dlpack
