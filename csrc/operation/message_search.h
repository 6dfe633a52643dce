// Finds the next message from one rank, or from any rank, for a receiver that does not know its
// size.
#pragma once

#include <string>
#include <vector>

#include "engine/message_probe.h"
#include "operation/message.h"
#include "operation/operation.h"

namespace pc {

// A search for a message from one rank takes the message's number when the search begins, as a
// receive does, because receives get messages in the order of their calls. A search for a message
// from any rank probes the next message of every rank, and takes the number of the message that it
// finds.
class MessageSearch {
 public:
  // If `wanted.peer` is kAnyRank, finds the first message that arrives. Otherwise finds the message
  // with the number `wanted.place.number`, which no other caller receives, or the next message if
  // that number is 0.
  MessageSearch(GroupState& group, Transport& transport, Reactor& reactor, const IncomingMessage& wanted,
                uint32_t group_id);
  ~MessageSearch();  // releases the number if no message was found
  MessageSearch(const MessageSearch&) = delete;
  MessageSearch& operator=(const MessageSearch&) = delete;

  std::string operation() const;  // "recv from any rank, tag 5"
  // May be called only once. Errors are those that a receive would return.
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
  std::vector<uint64_t> numbers_;  // for each rank of peers_, the number of the message to find
  bool has_number_ = false;        // numbers_[0] was taken and must be released if no message is found
};

}  // namespace pc
