// Key-value rendezvous: how ranks find each other before any connection exists. Values are small (addresses, tables).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/status.h"

namespace pc {

inline constexpr std::size_t kMaxKeyBytes = std::size_t{4} * 1024;
inline constexpr std::size_t kMaxValueBytes = std::size_t{8} * 1024 * 1024;

// By when a call on a store ends. `way_s`: what the way to the store and back may take all the same, so that a look at what
// is there without waiting, or after the deadline, comes to something.
struct StoreDeadline : Deadline {
  StoreDeadline(Deadline deadline, double way = 0)  // NOLINT(google-explicit-constructor): a deadline is one
      : Deadline(deadline),
        way_s(way) {}
  double way_s;
};

// Thread-safety: all methods. Every wait has a deadline; an expired one is kTimeout and names the key.
class Store {
 public:
  virtual ~Store() = default;
  virtual Status set(std::string_view key, std::string_view value, StoreDeadline deadline) = 0;
  virtual Result<std::string> get(std::string_view key, StoreDeadline deadline) = 0;  // waits for the key
  virtual Result<std::string> pop(std::string_view key,
                                  StoreDeadline deadline) = 0;  // the same, and erases it: one pop gets it
  virtual Status wait(std::string_view key, StoreDeadline deadline) = 0;  // the same, without the value
  virtual Result<int64_t> add(std::string_view key, int64_t delta,
                              StoreDeadline deadline) = 0;  // missing counts as 0; returns the new value
  virtual Status erase(std::string_view key, StoreDeadline deadline) = 0;         // of a missing key: OK
  virtual Status erase_all(std::string_view prefix, StoreDeadline deadline) = 0;  // every key that begins so
  // In a forked child: closes every descriptor. Nothing may follow.
  virtual void close_in_child() noexcept {}
};

}  // namespace pc
