// The communicator of one group over one transport.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "comm/communicator.h"
#include "comm/runtime.h"
#include "comm/selection.h"
#include "engine/plan_executor.h"

namespace pc {

// Thread-safety: all methods.
class GroupCommunicator final : public Communicator {
 public:
  struct Parts {                     // not owned; all outlive the communicator
    Transport* transport = nullptr;  // these three: null if size is 1
    Reactor* reactor = nullptr;
    Executor* executor = nullptr;
    const HostMap* hosts = nullptr;
    const std::function<bool()>* interrupted = nullptr;
  };
  GroupCommunicator(const Parts& parts, uint32_t group, Rank rank, std::vector<Rank> world_ranks,
                    double timeout_s, SelectionTable selection);

  Status run(const Request& request, double timeout_s) override;
  Status send(ConstBuffer data, Rank peer, uint32_t tag, double timeout_s) override;
  Status recv(Buffer data, Rank peer, uint32_t tag, double timeout_s) override;
  Result<std::unique_ptr<Work>> launch(const Request& request) override;
  Result<std::string> explain(Collective collective, uint64_t nbytes, Rank root) const override;
  void abort(const Status& why) noexcept override;

  // Turns how a call ended into what its caller is told. The first failure ends the group: what the peers have received
  // of this call is unknown, so nothing later could be trusted.
  Status conclude(const Status& ended, const std::string& operation, double elapsed_s);

 private:
  struct Started {
    std::unique_ptr<Work> work;
    Choice choice;
    uint64_t sequence = 0;
  };
  Result<Started> start(const Request& request);
  MessageId next_message(Rank peer, uint32_t tag, bool sends, DType dtype,
                         std::size_t count);  // messages_mutex_ held
  Rank world_rank(Rank rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }
  WaitContext context_for(double timeout_s) const;
  Status ended_before() const;  // kAborted naming the first cause; OK while the group is usable
  std::string name_of_peer(Rank peer) const;
  std::string advice(const Status& ended) const;

  const Parts parts_;
  const uint32_t group_;
  const std::vector<Rank> world_ranks_;
  const SelectionTable selection_;

  std::mutex turn_mutex_;  // guards sequence_, and keeps numbering and launching together
  uint64_t sequence_ = 0;
  std::mutex messages_mutex_;  // guards messages_, and keeps numbering and posting together
  std::unordered_map<uint64_t, uint64_t> messages_;  // (peer, tag, direction) -> how many so far

  std::atomic<uint32_t> ended_word_{0};  // not 0: cause_ is set for good
  mutable std::mutex cause_mutex_;       // guards cause_
  Status cause_;
};

}  // namespace pc
