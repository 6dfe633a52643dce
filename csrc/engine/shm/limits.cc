#include "engine/shm/limits.h"

#include <algorithm>
#include <array>

#include "base/byte_units.h"

namespace pc::shm {
namespace {

constexpr std::array<LimitRow, 8> kTable = {{
    {"combined_at_once", &Limits::combined_at_once, 64, 16 * kMiB, 1, false},
    {"moved_at_once", &Limits::moved_at_once, 64, 16 * kMiB, 1, false},
    {"least_chunk", &Limits::least_chunk, 4 * kKiB, 4 * kMiB, 128, false},
    {"most_chunk", &Limits::most_chunk, 4 * kKiB, 4 * kMiB, 128, false},
    {"in_place_from", &Limits::in_place_from, 0, 64 * kGiB, 1, true},
    {"past_caches_from", &Limits::past_caches_from, 0, 64 * kGiB, 1, true},
    {"private_from", &Limits::private_from, 64 * kKiB, 64 * kGiB, 1, true},
    {"ring", &Limits::ring, 256 * kKiB, 64 * kMiB, 64 * kKiB, false},
}};

}  // namespace

Limits usual_limits(std::size_t ranks) {
  Limits usual = {};
  // In one exchange every rank reads n - 1 arrays. So the more ranks there are, the smaller is the
  // size from which rounds pay.
  usual.combined_at_once = ranks == 2 ? 128 * kKiB : ranks <= 4 ? 16 * kKiB : 4 * kKiB;
  usual.moved_at_once = 64 * kKiB;
  // Chunks are small enough that reads overlap writes, and large enough that an announcement costs
  // little.
  usual.least_chunk = 32 * kKiB;
  usual.most_chunk = 128 * kKiB;
  // From this size on, data does not fit into a core's share of the caches.
  usual.in_place_from = usual.past_caches_from = 8 * kMiB;
  // From this size on, memory bandwidth is the limit, and one copy less counts: an alltoall of 64
  // MiB on 4 ranks takes 12.5 ms instead of 14.9. Below this size the ring is as fast, because its
  // stores are chosen at run time (shm/store_choice.h), and it needs no trials.
  usual.private_from = 32 * kMiB;
  // A ring is larger than a core's own caches, so that written lines have left these caches when
  // the ring reuses them. It is small enough for the cache that all cores share.
  usual.ring = ranks <= 8 ? 2 * kMiB : kMiB;
  return usual;
}

std::span<const LimitRow> limit_table() { return kTable; }

Status set_limit(Limits& limits, std::string_view name, std::size_t value) {
  const auto refuse = [](const std::string& why) { return Status(Code::kInvalidArgument, why); };
  const auto row =
      std::find_if(kTable.begin(), kTable.end(), [&](const LimitRow& r) { return r.name == name; });
  if (row == kTable.end()) {
    std::string known;
    for (const LimitRow& each : kTable) known += (known.empty() ? "" : ", ") + std::string(each.name);
    return refuse("no limit is called '" + std::string(name) + "', but " + known);
  }
  const bool allowed = (value >= row->least && value <= row->most && value % row->multiple == 0) ||
                       (value == kNever && row->may_be_never);
  if (!allowed) {
    return refuse(std::string(name) + " cannot be " + std::to_string(value) + ": it is " +
                  std::to_string(row->least) + " to " + std::to_string(row->most) + " bytes" +
                  (row->multiple == 1 ? "" : ", a multiple of " + std::to_string(row->multiple)) +
                  (row->may_be_never ? ", or inf" : ""));
  }
  limits.*row->limit = value;
  return Status::ok();
}

Status check(const Limits& limits) {
  if (limits.least_chunk <= limits.most_chunk) return Status::ok();
  return Status(Code::kInvalidArgument, "least_chunk is " + std::to_string(limits.least_chunk) +
                                            ", more than most_chunk, " + std::to_string(limits.most_chunk));
}

Limits limits_for(const LimitsByRanks& exceptions, std::size_t ranks) {
  const auto found = exceptions.find(ranks);
  return found == exceptions.end() ? usual_limits(ranks) : found->second;
}

}  // namespace pc::shm
