// One member of a group. The ranks of the group are threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>

#include "engine/shm/group.h"
#include "engine/shm/host.h"
#include "shm/local_peers_thread.h"

namespace pc::shm {

inline constexpr std::array<Rank, 3> kRanks = {0, 1, 2};

struct Member {
  Member(ThreadHost& memory, Rank rank, Rank size)
      : local_peers(memory.local_peers_of(rank)),
        wakeup(ShmWakeup::create(*local_peers, rank, size).value()),
        host(Host::create(*local_peers, *wakeup).value()),
        group(*host, 0, rank, std::span(kRanks).first(static_cast<std::size_t>(size)), usual_limits(size)) {}
  bool joins() {
    group.awaited().clear();
    const Result<bool> joined = group.join();
    EXPECT_TRUE(joined.is_ok()) << joined.status().to_string();
    return joined.is_ok() && joined.value();
  }
  std::unique_ptr<LocalPeers> local_peers;
  std::unique_ptr<ShmWakeup> wakeup;
  std::unique_ptr<Host> host;
  Group group;
};

}  // namespace pc::shm
