// Finds the next message of one rank, or of any, before anybody knows how large it is.
#pragma once

#include <string>
#include <vector>

#include "engine/message_probe.h"
#include "operation/message.h"
#include "operation/operation.h"

namespace pc {

// From one rank, the message gets its number at once, as if it were received: receives are served in the order of their
// calls. From any rank, the messages that would be next are looked for, and the one that is found gets its number then.
class MessageSearch {
 public:
  // Of `wanted.peer` kAnyRank whatever comes first. A number in its place names the message that is to be found,
  // which no other caller receives.
  MessageSearch(GroupState& group, Transport& transport, Reactor& reactor, const IncomingMessage& wanted,
                uint32_t group_id);
  ~MessageSearch();  // what was not found can be received by others
  MessageSearch(const MessageSearch&) = delete;
  MessageSearch& operator=(const MessageSearch&) = delete;

  std::string operation() const;  // "recv from any rank, tag 5"
  // Once. Its errors are in the words of the group.
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
  std::vector<Rank> peers_;        // of the group; in the order in which they are looked at
  std::vector<uint64_t> numbers_;  // of their messages
  bool has_number_ = false;        // numbers_[0] is taken
};

}  // namespace pc
