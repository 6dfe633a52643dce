// How ranks that know each other's addresses become a full mesh of connections.
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

struct MeshSockets {  // entry r: connected to rank r; our own is empty
  std::vector<std::vector<ByteStream>> data;
  std::vector<ByteStream> control;
};
struct MeshIdentity {
  Rank rank = 0, size = 1;
  uint32_t epoch = 0;
  int sockets = 1;  // for data, to each rank; the same on all
};
// Connects to every lower rank and accepts every higher one, once for each connection, all at once, under one deadline. Entry r of
// `addresses` is where rank r listens: "ip:port", or several, separated by commas, which are tried in turn. Whoever comes to
// one of `listeners` and does not prove that it belongs to us is dropped without harm to the others, and `log` hears of it.
// Looks at `context` and `give_up` at least every 50 ms. An error names every missing rank, its address and what happened.
Result<MeshSockets> connect_mesh(const MeshIdentity& us, const Credentials& credentials,
                                 const std::vector<Fd>& listeners, const std::vector<std::string>& addresses,
                                 const WaitContext& context, const std::atomic<bool>& give_up,
                                 const Logger& log);

}  // namespace pc
