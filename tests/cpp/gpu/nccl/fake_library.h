// The fake NCCL of one version, opened like a real one, and clocks that a test drives.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/nccl/script.h"
#include "gpu/nccl/communicator.h"
#include "gpu/nccl/library.h"

namespace pc::nccl::testing {

using pc::testing::FakeNccl;

// Returns an environment in which a variable names the library.
inline SearchEnvironment named(const std::string& path) {
  return {[path](std::string_view variable) { return variable == kLibraryVariable ? path : std::string(); },
          {},
          [] { return std::string(); }};
}

// Each pause takes `step`. With 0 time does not advance, so that only the awaited event can end a
// wait.
class StepClock final : public Clock {
 public:
  explicit StepClock(std::chrono::nanoseconds step = std::chrono::nanoseconds(0)) : step_(step.count()) {}
  void step(std::chrono::nanoseconds step) { step_.store(step.count()); }
  void advance(std::chrono::nanoseconds time) { now_.fetch_add(time.count()); }
  TimePoint now() override { return TimePoint(std::chrono::nanoseconds(now_.load())); }
  void sleep(std::chrono::nanoseconds) override {
    now_.fetch_add(step_.load());
    std::this_thread::yield();
  }
  Deadline in(double seconds) { return Deadline::after(seconds, now()); }

 private:
  std::atomic<int64_t> step_, now_{0};
};

class FakeLibrary {
 public:
  explicit FakeLibrary(const char* path) : library_(Library::open(named(path)).value()) {
    void* const same = ::dlopen(path, RTLD_NOLOAD | RTLD_NOW);
    script_ = static_cast<const FakeNccl*>(::dlsym(same, "fake_nccl_script"));
    script_->reset();
  }
  FakeLibrary(const FakeLibrary&) = delete;
  FakeLibrary& operator=(const FakeLibrary&) = delete;
  ~FakeLibrary() {
    script_->release();
    while (script_->blocked() != 0) std::this_thread::yield();
    EXPECT_STREQ(script_->violations(), "");
    script_->reset();
  }
  const FakeNccl* operator->() const { return script_; }
  const Api& api() const { return library_.api(); }
  std::shared_ptr<const Api> shared_api() const { return library_.shared_api(); }
  std::string calls_of_newest() const {
    void* comm = nullptr;
    return script_->last_comm(&comm) != 0 ? script_->calls(comm) : "";
  }

 private:
  Library library_;
  const FakeNccl* script_ = nullptr;
};

// Makes a communicator for each rank of a world. Each rank joins in a thread of its own, since
// joining waits for all of them.
inline std::vector<std::unique_ptr<Communicator>> join_all(const Resources& resources, Rank size,
                                                           const WaitContext& context) {
  const UniqueId id = make_unique_id(*resources.api).value();
  std::vector<std::unique_ptr<Communicator>> made(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      made[static_cast<std::size_t>(rank)] =
          Communicator::init(resources, {id, rank, size}, {}, context).value();
    });
  for (std::thread& each : threads) each.join();
  return made;
}

}  // namespace pc::nccl::testing
