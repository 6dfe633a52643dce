// One member of a group whose ranks are threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>

#include "engine/shm/group.h"
#include "engine/shm/host.h"
#include "shm/thread_neighbours.h"

namespace pc::shm {

inline constexpr std::array<Rank, 3> kRanks = {0, 1, 2};

struct Member {
  Member(ThreadHost& memory, Rank rank, Rank size)
      : neighbours(memory.neighbours_of(rank)),
        doorbell(Doorbell::create(*neighbours, rank, size).value()),
        host(Host::create(*neighbours, *doorbell).value()),
        group(*host, 0, rank, std::span(kRanks).first(static_cast<std::size_t>(size)), usual_limits(size)) {}
  bool joins() {
    group.awaited().clear();
    const Result<bool> joined = group.join();
    EXPECT_TRUE(joined.is_ok()) << joined.status().to_string();
    return joined.is_ok() && joined.value();
  }
  std::unique_ptr<Neighbours> neighbours;
  std::unique_ptr<Doorbell> doorbell;
  std::unique_ptr<Host> host;
  Group group;
};

}  // namespace pc::shm
