#include "failure/ended_ranks.h"

#include "bootstrap/store_keys.h"

namespace pc {
namespace {

// worlds of a job that get a report; in later worlds ranks wait until their deadlines
constexpr uint32_t kWorlds = 8;

}  // namespace

void report_ended(Store& store, const Credentials& credentials, const std::vector<Rank>& ranks,
                  const std::string& why, Deadline deadline) {
  RuntimeOptions world;
  world.credentials = credentials;
  for (const Rank rank : ranks) {
    const std::string text =
        publish(Status(Code::kPeerExited, "rank " + std::to_string(rank) + " " + why).with_peer(rank));
    for (world.epoch = 0; world.epoch < kWorlds; ++world.epoch) {
      const Keys keys(world);
      const Result<int64_t> came = store.add(keys.came(rank), 0, deadline);
      if (!came.is_ok()) return;
      if (came.value() != 0) continue;
      (void)store.set(keys.member(rank), text, deadline);  // rank 0 waits for this key
      (void)store.set(keys.list(), text, deadline);        // the other ranks wait for this key
    }
  }
}

}  // namespace pc
