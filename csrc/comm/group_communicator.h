// The communicator of one group over one transport.
#pragma once

#include <memory>
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
  ~GroupCommunicator() override;  // ends what still runs

  Status run(const Request& request, double timeout_s) override;
  Status send(ConstBuffer data, Rank peer, uint32_t tag, double timeout_s) override;
  Status recv(Buffer data, Rank peer, uint32_t tag, double timeout_s) override;
  Result<std::unique_ptr<Work>> launch(const Request& request) override;
  Result<std::string> explain(Collective collective, uint64_t nbytes, Rank root) const override;
  void abort(const Status& why) noexcept override;
  // Waits until every rank has come here. A rank that is in another call instead is told that this one leaves. Whatever
  // the outcome, no call may follow; but the connections stay, so that a goodbye can be said.
  Status leave(double timeout_s);

 private:
  struct Shared;  // with the Work it launched, which may outlive it
  class GroupWork;
  struct Started {
    std::unique_ptr<Work> work;
    Choice choice;
    uint64_t sequence = 0;
  };
  Status usable() const;  // why no call can be made now
  Result<Started> start(const Request& request, TimePoint began, bool leaving = false);
  template <class Post>
  Status exchange(const ConstBuffer& data, Rank peer, uint32_t tag, bool sends, double timeout_s,
                  Post&& post);
  MessageId next_message(Rank peer, uint32_t tag, bool sends, DType dtype,
                         std::size_t count);  // messages_mutex_ held
  WaitContext context_for(double timeout_s, TimePoint began) const;

  const Parts parts_;
  const uint32_t group_;
  const std::vector<Rank> world_ranks_;
  const SelectionTable selection_;
  const std::shared_ptr<Shared> shared_;

  std::mutex turn_mutex_;  // guards sequence_, and keeps numbering and launching together
  uint64_t sequence_ = 0;
  std::mutex messages_mutex_;  // guards messages_, and keeps numbering and posting together
  std::unordered_map<uint64_t, uint64_t> messages_;  // (peer, tag, direction) -> how many so far
};

}  // namespace pc
