// A FAKE of the CUDA driver: streams, each a queue with a thread of its own, and captures.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "fakes/cuda/world.h"

namespace pc::cuda {

inline bool may_go(const CUstream_st& stream) { return !stream.held || stream.steps > 0; }

// Some conditions of an operation change without a notification (memory, other processes), hence
// the short waits. They use the system clock: ThreadSanitizer does not support waits on the other
// one.
inline void work_off(CUstream stream) {
  World& w = world();
  std::unique_lock lock(w.mutex);
  for (;;) {
    if (stream->stopping) return;
    if (stream->destroyed && stream->queue.empty()) return;
    if (stream->queue.empty() || !may_go(*stream)) {
      w.changed.wait(lock);
      continue;
    }
    if (!stream->queue.front().ready()) {
      w.changed.wait_until(lock, std::chrono::system_clock::now() + std::chrono::milliseconds(1));
      continue;
    }
    const Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->busy = true;
    lock.unlock();
    operation.run();
    lock.lock();
    stream->busy = false;
    if (stream->held) --stream->steps;
    w.changed.notify_all();
  }
}

inline CUstream make_stream(CUcontext context) {
  auto& made = world().streams.emplace_back(std::make_unique<CUstream_st>());
  made->context = context;
  made->id = ++world().stream_ids;
  made->held = world().hold_new;
  made->thread = std::thread(work_off, made.get());
  return made.get();
}

// Returns null if there is no such stream.
inline CUstream find_stream(void* handle) {
  World& w = world();
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {
    CUcontext context = this_thread().context;
    if (context == nullptr) return nullptr;
    CUstream& stream = w.default_streams[context];
    if (stream == nullptr) stream = make_stream(context);
    return stream;
  }
  for (const auto& stream : w.streams) {
    if (stream.get() == handle && !stream->destroyed) return stream.get();
  }
  return nullptr;
}

inline CUresult enqueue(CUstream handle, Operation operation) {
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    stream->graph.push_back(std::move(operation));
  } else {
    stream->queue.push_back(std::move(operation));
    world().changed.notify_all();
  }
  return CUDA_SUCCESS;
}
inline CUresult enqueue(CUstream stream, std::function<void()> run) {
  return enqueue(stream, Operation{[] { return true; }, std::move(run)});
}

inline CUresult cuStreamCreate(CUstream* stream, unsigned) {
  BEGIN_UNSAFE(cuStreamCreate);
  *stream = make_stream(this_thread().context);
  return CUDA_SUCCESS;
}
inline CUresult cuStreamDestroy(CUstream handle) {
  BEGIN_IN_CONTEXT(cuStreamDestroy);
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  stream->destroyed = true;  // its queued work still runs
  world().changed.notify_all();
  return CUDA_SUCCESS;
}
inline CUresult cuStreamQuery(CUstream handle) {
  BEGIN_UNSAFE(cuStreamQuery);
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return stream->queue.empty() && !stream->busy ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
inline CUresult cuStreamIsCapturing(CUstream handle, int* status) {
  BEGIN_IN_CONTEXT(cuStreamIsCapturing);
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = stream->capture;
  return CUDA_SUCCESS;
}
inline CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  BEGIN_IN_CONTEXT(cuStreamGetId);
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id = stream->id;
  return CUDA_SUCCESS;
}
inline CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  BEGIN(cuThreadExchangeStreamCaptureMode);
  std::swap(*mode, this_thread().capture_mode);
  return CUDA_SUCCESS;
}

}  // namespace pc::cuda
