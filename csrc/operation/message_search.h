// Finds the next message of one rank, or of any rank, before its size is known here.
#pragma once

#include <string>
#include <vector>

#include "engine/message_probe.h"
#include "operation/message.h"
#include "operation/operation.h"

namespace pc {

// A search from one rank gets its message number at once, like a receive: receives are served in
// the order of their calls. A search from any rank probes the next message of every rank, and the
// message it finds gets its number then.
class MessageSearch {
 public:
  // If `wanted.peer` is kAnyRank, it finds the first message that arrives. Otherwise
  // `wanted.place.number`, if not 0, names the message to find, which no other caller receives.
  MessageSearch(GroupState& group, Transport& transport, Reactor& reactor, const IncomingMessage& wanted,
                uint32_t group_id);
  ~MessageSearch();  // a message that was not found becomes available to other receives
  MessageSearch(const MessageSearch&) = delete;
  MessageSearch& operator=(const MessageSearch&) = delete;

  std::string operation() const;  // "recv from any rank, tag 5"
  // Call it once. Its errors are the group's.
  Result<FoundMessage> wait(const GroupCall& call, const WaitContext& context);

 private:
  void begin(MessageProbe& probe);
  bool take(const MessageProbe::Find& find);
  std::vector<Rank> round_robin(Rank last) const;
  Status in_words(const Status& ended, Rank peer, bool peers_have_left) const;

  GroupState& group_;
  Transport& transport_;
  Reactor& reactor_;
  const IncomingMessage wanted_;
  const uint32_t group_id_;
  std::vector<Rank> peers_;        // ranks of the group, in the order in which they are probed
  std::vector<uint64_t> numbers_;  // numbers of their messages
  bool has_number_ = false;        // numbers_[0] has been taken
};

}  // namespace pc
