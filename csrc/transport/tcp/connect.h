// Connects ranks that know each other's addresses into a full mesh of connections.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/status.h"
#include "base/types.h"
#include "base/waiter.h"
#include "net/byte_stream.h"
#include "wire/credentials.h"

namespace pc {

struct MeshSockets {  // entry r is connected to rank r; this rank's own entry is empty
  std::vector<std::vector<ByteStream>> data;
  std::vector<ByteStream> control;
};
struct MeshIdentity {
  Rank rank = 0, size = 1;
  uint32_t epoch = 0;
  int sockets = 1;  // data connections to each rank; the same on all ranks
};
// Connects to every lower rank and accepts the connections of every higher rank, all concurrently
// and under one deadline. Entry r of `addresses` is the address on which rank r listens: "ip:port",
// or several of these separated by commas, which are tried one after the other. A connection to one
// of `listeners` that does not prove that it belongs to this job is dropped, does not disturb the
// other connections, and is reported to `log`. Checks `context` and `give_up` at least every 50 ms.
// An error names every missing rank, its address and what happened.
Result<MeshSockets> connect_mesh(const MeshIdentity& us, const Credentials& credentials,
                                 const std::vector<Fd>& listeners, const std::vector<std::string>& addresses,
                                 const WaitContext& context, const std::atomic<bool>& give_up,
                                 const Logger& log);

}  // namespace pc
