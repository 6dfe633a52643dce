// A FAKE of the CUDA driver: captures that the program itself begins, and the graphs they produce.
#pragma once

#include <list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/cuda/streams.h"

namespace pc::cuda {

inline CUresult cuStreamBeginCapture(CUstream handle, int) {
  BEGIN_IN_CONTEXT(cuStreamBeginCapture);
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_INVALID_VALUE;
  stream->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  stream->capturer = std::this_thread::get_id();
  stream->graph.clear();
  return CUDA_SUCCESS;
}
inline CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  BEGIN_IN_CONTEXT(cuStreamEndCapture);
  CUstream stream = find_stream(handle);
  *graph = nullptr;
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const int status = std::exchange(stream->capture, CU_STREAM_CAPTURE_STATUS_NONE);
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_INVALID_VALUE;
  *graph =
      world().graphs.emplace_back(std::make_unique<CUgraph_st>(CUgraph_st{std::move(stream->graph)})).get();
  stream->graph.clear();
  return CUDA_SUCCESS;
}
inline CUresult cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long) {
  BEGIN_IN_CONTEXT(cuGraphInstantiateWithFlags);
  auto& all = world().runnable_graphs;
  *made = all.emplace_back(std::make_unique<CUgraphExec_st>(CUgraphExec_st{graph->operations})).get();
  return CUDA_SUCCESS;
}
inline CUresult cuGraphLaunch(CUgraphExec graph, CUstream handle) {
  BEGIN_IN_CONTEXT(cuGraphLaunch);
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  stream->queue.insert(stream->queue.end(), graph->operations.begin(), graph->operations.end());
  world().changed.notify_all();
  return CUDA_SUCCESS;
}

template <class Graph>
CUresult destroy_graph(std::list<std::unique_ptr<Graph>>& all, Graph* graph) {
  return std::erase_if(all, [=](const auto& each) { return each.get() == graph; }) == 1
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}
inline CUresult cuGraphExecDestroy(CUgraphExec graph) {
  BEGIN_IN_CONTEXT(cuGraphExecDestroy);
  return destroy_graph(world().runnable_graphs, graph);
}
inline CUresult cuGraphDestroy(CUgraph graph) {
  BEGIN_IN_CONTEXT(cuGraphDestroy);
  return destroy_graph(world().graphs, graph);
}

}  // namespace pc::cuda
