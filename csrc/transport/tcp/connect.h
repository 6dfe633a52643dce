// How ranks that know each other's addresses become a full mesh of connections.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/status.h"
#include "base/waiter.h"
#include "wire/frame.h"

namespace pc {

struct MeshSockets {  // entry r: connected to rank r; our own is empty
  std::vector<Fd> data, control;
};
// Connects to every lower rank and accepts every higher one, once for each role, all at once, under one deadline. `ours`
// is what we say of ourselves, its role aside. Whoever else comes to
// `listener` is dropped without harm to the others, and `log` hears of it. Looks at `context` and `give_up` at least
// every 50 ms. An error names every missing rank, its address and what happened.
Result<MeshSockets> connect_mesh(const Hello& ours, int listener, const std::vector<std::string>& addresses,
                                 const WaitContext& context, const std::atomic<bool>& give_up,
                                 const Logger& log);

}  // namespace pc
