// The messages of a group; its collectives are in group_communicator.cc. A message has a number, of its peer, tag and direction, and is
// posted at once or waited for. One that is offered (offered_message.h) has several parts of one number.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/clock.h"
#include "comm/arguments.h"
#include "comm/group_communicator.h"
#include "engine/plan/point_to_point.h"
#include "failure/array_description.h"
#include "failure/descriptor.h"
#include "failure/group_calls.h"
#include "operation/message_search.h"
#include "operation/plain_bytes.h"
#include "operation/progress.h"

namespace pc {
namespace {

CallRecord message_record(const ConstBuffer& data, Rank peer, bool sends, const MessageId& id,
                          const char* site, TimePoint began) {
  CallRecord record;
  record.kind = sends ? CallRecord::Kind::kSend : CallRecord::Kind::kRecv;
  record.dtype = data.dtype;
  record.count = data.count;
  record.layout = data.layout;
  record.root_or_peer = peer;
  record.group = id.stream.group;
  record.tag = id.stream.tag;
  record.sequence = id.sequence;
  record.digest = id.digest;
  record.site = site;
  record.began_ns = to_ns(began);
  return record;
}

}  // namespace

Status GroupCommunicator::check(const Message& message) {
  PC_TRY(check_message(message.data, message.peer, size_, message.sends ? "send to" : "recv from"));
  return message.goes_on() ? goes_on() : usable();
}

// What has come up about earlier calls is for who makes a new one.
Status GroupCommunicator::goes_on() {
  PC_TRY(shared_->calls.alive());
  return shared_->reentry.check();
}

GroupCommunicator::NumberedMessage GroupCommunicator::number(const Message& message, TimePoint began) {
  const auto& [data, peer, tag, sends, site, number, description, bundle, found_digest, place] = message;
  const uint64_t sequence = number != 0 ? number : shared_->messages.take(peer, tag, sends);
  if (place.used != nullptr) *place.used = true;
  const bool compares = parts_.check != Check::kOff && (message.is_whole() || message.is_offer());
  const uint64_t fingerprint = found_digest ? *found_digest
                               : compares   ? digest_of_message(shared_->calls.identity(), tag, sequence,
                                                                data.dtype, data.count, data.layout, bundle)
                                            : 0;  // what an offer was compared for comes in its size
  const uint64_t digest = message.is_offer() ? fingerprint | kOfferBit : fingerprint;
  const MessageId id{{group_ | place_of(place.part), StreamClass::kPointToPoint, tag}, sequence, 0, digest};
  const MessageOperation::What what = message.what();
  CallRecord record = message_record(what.data, peer, what.is_sent(), id, site, began);
  record.group = group_;
  return {id, {0, shared_->calls.record_message(record), began}};
}

void GroupCommunicator::post(const Message& message, const NumberedMessage& numbered,
                             MessageOperation& started) {
  Reactor& reactor = *parts_.calls.reactor;
  const Rank to = shared_->calls.names().to_world(message.peer);
  started.set_posted(numbered.call, numbered.id,
                     message.sends ? post_send(*parts_.transport, reactor, to, numbered.id,
                                               {message.payload()}, started.what().description, started.how())
                                   : post_recv(*parts_.transport, reactor, to, numbered.id, message.payload(),
                                               started.how()));
}

void GroupCommunicator::post(const Message& message, TimePoint began, MessageOperation& started) {
  const std::unique_lock turn = shared_->messages.turn();
  post(message, number(message, began), started);
}

// A small message between ranks that share memory needs nothing that could be waited for, or cancelled.
bool GroupCommunicator::exchange_at_once(const Message& message, const NumberedMessage& numbered,
                                         double timeout_s) {
  constexpr double kLongEnough = 1e-3;  // to wait without a look at the deadline
  const std::size_t nbytes = message.nbytes();
  if (nbytes > kEagerBytes || message.data.list != nullptr) return false;
  const Rank to = shared_->calls.names().to_world(message.peer);
  if (message.sends) {
    const std::span<const char> description(message.description);
    const std::span<const std::byte> payload(message.data.data, nbytes);
    return parts_.transport->send_at_once(to, {numbered.id, payload, nullptr, 0, std::as_bytes(description)});
  }
  return timeout_s >= kLongEnough &&
         parts_.transport->recv_at_once(to, {numbered.id, {message.data.data, nbytes}, nbytes});
}

Status GroupCommunicator::exchange(const Message& message, double timeout_s, uint64_t* number) {
  PC_TRY(check(message));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  const TimePoint began = now();
  std::unique_lock turn = shared_->messages.turn();
  const NumberedMessage numbered = this->number(message, began);
  if (number != nullptr) *number = numbered.id.sequence;
  if (!message.sends) turn.unlock();  // it may wait
  if (exchange_at_once(message, numbered, seconds)) {
    if (turn.owns_lock()) turn.unlock();
    shared_->calls.done(numbered.call);
    look_around();
    return Status::ok();
  }
  MessageOperation started(*shared_, message.what());
  post(message, numbered, started);
  if (message.sends) turn.unlock();
  const Status ended = received(started, message, context_for(seconds, began, message.place.stop));
  if (number != nullptr && started.untold()) *number = 0;
  return ended;
}

// What was offered instead of being sent is asked for.
Status GroupCommunicator::received(MessageOperation& started, const Message& message,
                                   const WaitContext& context) {
  if (!started.was_offered(context)) {
    const Status ended = started.finish(context);
    if (started.refuses_offer()) refuse(started);
    return ended;
  }
  const ConstBuffer array = message.data;
  const uint64_t number = started.number();
  MessageGo go;
  answer(started, {MessageAnswer::Word::kThroughHost, {}});
  const Status heard = recv({room_in(go),
                             message.peer,
                             message.tag,
                             message.site,
                             0,
                             {MessagePart::kGo, number, message.place.stop, &array}},
                            std::max(context.deadline.remaining_s(), kOfferGraceS));
  if (!heard.is_ok()) return refuse_data(message.peer, message.tag, number), heard;
  PC_TRY(go.status(message.peer).with_rank(rank_).with_operation(started.text()));
  Message data = message;
  data.number = number;
  data.digest = {};
  data.place.part = MessagePart::kData;
  MessageOperation moving(*shared_, data.what());
  post(data, now(), moving);
  WaitContext last = context;  // the sender counts on this rank now
  last.deadline = Deadline(std::max(context.deadline.when(), Deadline::after(kOfferGraceS).when()));
  return moving.finish(last);
}

// The sender of the data hears at once that nobody takes them.
void GroupCommunicator::refuse_data(Rank peer, uint32_t tag, uint64_t number) {
  (void)begin_recv({{}, peer, tag, nullptr, 0, {MessagePart::kData, number}}, {timeout_s_, {}});
}

void GroupCommunicator::refuse(const MessageOperation& offered) {
  const ConstBuffer& array = offered.what().data;
  const std::string expected = array_text(array.dtype, array.count, array.layout);
  answer(offered,
         MessageAnswer::refused(offered.expects_offered() ? expected + " in memory of the host" : expected));
}

// Does not wait: the progress thread does it, too. Whoever cannot say it has a group that has ended.
void GroupCommunicator::answer(const MessageOperation& offered, const MessageAnswer& answer) {
  const MessageOperation::What& what = offered.what();
  const auto kept = std::make_shared<std::pair<MessageAnswer, ConstBuffer>>(answer, what.data);
  (void)begin_send({bytes_of(kept->first),
                    what.peer,
                    what.tag,
                    nullptr,
                    {},
                    0,
                    {MessagePart::kAnswer, offered.number(), nullptr, &kept->second}},
                   {timeout_s_, [kept](const Status&) {}});
}

Status GroupCommunicator::offer(const OutgoingMessage& message, double timeout_s, uint64_t* number) {
  *number = 0;
  Message offered = sent(message);
  offered.place.part = MessagePart::kOffer;
  offered.data.device = {};  // nothing of it is touched here
  offered.description = describe_offer(offered.data.nbytes(), offered.description);
  if (offered.description.size() > kMaxDescriptionBytes)
    offered.description = describe_offer(offered.data.nbytes(), {});
  const Status sent = exchange(offered, timeout_s, number);
  // A receiver that waits for the data already is one that answers.
  return sent.code() == Code::kMismatch ? Status::ok() : sent;
}

Status GroupCommunicator::take_offer(const FoundMessage& offer, const ConstBuffer& expected,
                                     std::optional<uint64_t> bundle) {
  const Buffer memory{const_cast<std::byte*>(expected.data),
                      expected.count,
                      expected.dtype,
                      {},
                      expected.layout,
                      expected.list};
  Message message{memory, offer.peer, offer.tag, false, offer.site, offer.number, {}, bundle.value_or(0)};
  message.place.part = MessagePart::kOffer;
  if (!bundle) message.digest = offer.digest;
  // An offer has no size that would be compared, and without PYCOLLECTIVE_CHECK no fingerprint.
  if (expected.nbytes() != offer.nbytes) message.digest = (offer.digest ^ 1) & ~kOfferBit;
  return exchange(message, timeout_s_);  // it is here
}

Result<std::unique_ptr<MessageOperation>> GroupCommunicator::launch(const Message& message, TimePoint began) {
  PC_TRY(check(message));
  auto work = std::make_unique<MessageOperation>(shared_, message.what(), *this);
  post(message, began, *work);
  return work;
}

Result<std::shared_ptr<AsyncWork>> GroupCommunicator::begin(const Message& message, Async how) {
  const TimePoint began = now();
  PC_TRY(check(message));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(how.timeout_s, timeout_s_));
  PC_TRY(parts_.progress->start());
  PC_ASSIGN_OR_RETURN(std::unique_ptr<MessageOperation> work, launch(message, began));
  return parts_.progress->add({std::move(work), Deadline::after(seconds, began), std::move(how.on_end)});
}

// A send reads its memory only.
GroupCommunicator::Message GroupCommunicator::sent(const OutgoingMessage& message) {
  const ConstBuffer& data = message.data;
  const Buffer memory{
      const_cast<std::byte*>(data.data), data.count, data.dtype, data.device, data.layout, data.list};
  const int64_t flat[] = {static_cast<int64_t>(count_of_items(data.count, data.layout))};
  return {memory,
          message.peer,
          message.tag,
          true,
          message.site,
          message.place.number,
          describe_array(data.dtype, message.shape.value_or(flat), data.layout),
          message.bundle,
          {},
          message.place};
}

Status GroupCommunicator::send(const OutgoingMessage& message, double timeout_s) {
  if (on_devices(message.data.device)) return parts_.devices->run(*this, UserCall::of(message), timeout_s);
  if (message.place.part == MessagePart::kData) {  // which is ready to be sent now
    const MessageGo go{1, Code::kOk, {}};
    PC_TRY(
        exchange(sent({bytes_of(go),
                       message.peer,
                       message.tag,
                       message.site,
                       {},
                       0,
                       {MessagePart::kGo, message.place.number, nullptr, &message.data, message.place.used}}),
                 kOfferGraceS));
    // The receiver counts on it now.
    if (timeout_s >= 0) timeout_s = std::max(timeout_s, kOfferGraceS);
  }
  return exchange(sent(message), timeout_s);
}

Result<FoundMessage> GroupCommunicator::find(const IncomingMessage& message, double timeout_s) {
  const auto& [data, peer, tag, site, bundle, place, stream] = message;
  if (peer != kAnyRank) PC_TRY(check_message({}, peer, size_, "recv from"));
  PC_TRY(place.number == 0 ? usable() : goes_on());
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  const TimePoint began = now();
  CallRecord record =
      message_record({}, peer, false, {{group_, StreamClass::kPointToPoint, tag}}, site, began);
  record.kind = CallRecord::Kind::kProbe;
  if (place.used != nullptr) *place.used = true;
  MessageSearch search(*shared_, *parts_.transport, *parts_.calls.reactor,
                       {group_, peer, tag, site, place.number});
  PC_ASSIGN_OR_RETURN(FoundMessage found, search.wait({0, shared_->calls.record_message(record), began},
                                                      context_for(seconds, began, place.stop)));
  std::string array;
  found.is_offer = is_offer(found.digest) && read_offer(found.description, &found.nbytes, &array);
  if (found.is_offer) found.description = std::move(array);
  return found;
}

Status GroupCommunicator::recv(Buffer data, const FoundMessage& found, std::optional<uint64_t> bundle) {
  if (on_devices(data.device)) return parts_.devices->run(*this, UserCall::of(data, found, bundle), -1);
  Message message{data, found.peer, found.tag, false, found.site, found.number, {}, bundle.value_or(0)};
  if (!bundle) message.digest = found.digest;
  if (const Status refused = check(message); !refused.is_ok()) return put_back(found), refused;
  const TimePoint began = now();
  MessageOperation started(*shared_, message.what());
  post(message, began, started);
  WaitContext context = context_for(0, began);
  context.deadline = found.deadline;
  return received(started, message, context);
}

void GroupCommunicator::put_back(const FoundMessage& found) {
  shared_->messages.give_back(found.peer, found.tag, false, found.number);
}

Status GroupCommunicator::sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag,
                                   double timeout_s) {
  if (on_devices(out.data.device, in.device)) {
    UserCall both = UserCall::of(out);
    both.kind = UserCall::Kind::kSendrecv;
    both.request.out = in;
    both.source = source;
    return parts_.devices->run(*this, std::move(both), timeout_s);
  }
  const Message there = sent(out), here{in, source, tag, false, out.site};
  PC_TRY(check_sendrecv(out.data, out.peer, in, source, rank_, size_));
  PC_TRY(usable());
  if (out.peer == rank_) {
    if (in.nbytes() != 0) std::memcpy(in.data, out.data.data, in.nbytes());
    return Status::ok();
  }
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  const TimePoint began = now();
  MessageOperation sending(*shared_, there.what()), receiving(*shared_, here.what());
  post(here, began, receiving);
  post(there, began, sending);
  const Status received = this->received(receiving, here, context_for(seconds, began));
  // What failed here does not change what the other rank expects.
  const Status left = sending.finish(context_for(seconds, began));
  return received.is_ok() ? left : received;
}

Status GroupCommunicator::recv(const IncomingMessage& message, double timeout_s) {
  if (on_devices(message.data.device)) return parts_.devices->run(*this, UserCall::of(message), timeout_s);
  const auto& [data, peer, tag, site, bundle, place, stream] = message;
  return exchange({data, peer, tag, false, site, place.number, {}, bundle, {}, place}, timeout_s);
}

Result<std::unique_ptr<Work>> GroupCommunicator::launch_send(const OutgoingMessage& message) {
  PC_ASSIGN_OR_RETURN(std::unique_ptr<Work> work, launch(sent(message), now()));
  return work;
}

Result<std::unique_ptr<Work>> GroupCommunicator::launch_recv(Buffer data, Rank peer, uint32_t tag,
                                                             const char* site) {
  PC_ASSIGN_OR_RETURN(std::unique_ptr<Work> work, launch({data, peer, tag, false, site}, now()));
  return work;
}

Result<std::shared_ptr<AsyncWork>> GroupCommunicator::begin_send(const OutgoingMessage& message, Async how) {
  if (on_devices(message.data.device))
    return parts_.devices->begin(*this, UserCall::of(message), std::move(how));
  return begin(sent(message), std::move(how));
}

Result<std::shared_ptr<AsyncWork>> GroupCommunicator::begin_recv(const IncomingMessage& message, Async how) {
  if (on_devices(message.data.device))
    return parts_.devices->begin(*this, UserCall::of(message), std::move(how));
  const auto& [data, peer, tag, site, bundle, place, stream] = message;
  return begin({data, peer, tag, false, site, place.number, {}, bundle, {}, place}, std::move(how));
}

uint64_t GroupCommunicator::take_number(Rank peer, uint32_t tag, bool sends) {
  const std::unique_lock turn = shared_->messages.turn();
  return shared_->messages.take(peer, tag, sends);
}

void GroupCommunicator::give_back(Rank peer, uint32_t tag, bool sends, uint64_t number) {
  shared_->messages.give_back(peer, tag, sends, number);
}

std::string GroupCommunicator::explain_messages() const {
  std::map<std::string_view, std::string> ranks;  // by way
  for (Rank peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    std::string& text = ranks[parts_.transport->way_to(shared_->calls.names().to_world(peer))];
    text += (text.empty() ? "" : ", ") + std::to_string(peer);
  }
  std::string text = "messages of rank " + std::to_string(rank_) + " of " + std::to_string(size_) + "\n";
  for (const auto& [way, peers] : ranks) text += std::string(way) + ": with ranks " + peers + "\n";
  return text +
         "up to 64 KiB they are sent before they are asked for, as long as 1 MiB or 1024 of them wait at "
         "most\n";
}

}  // namespace pc
