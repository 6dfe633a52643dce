#include "comm/group_messages.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/clock.h"
#include "comm/arguments.h"
#include "comm/group_parts.h"
#include "engine/plan/point_to_point.h"
#include "failure/array_description.h"
#include "failure/descriptor.h"
#include "operation/message_operation.h"
#include "operation/message_search.h"
#include "operation/plain_bytes.h"

namespace pc {
namespace {

CallRecord message_record(const GroupMessage& message, uint32_t group, TimePoint began) {
  const ConstBuffer data = message.array();
  CallRecord record;
  record.kind = message.is_sent() ? CallRecord::Kind::kSend : CallRecord::Kind::kRecv;
  record.dtype = data.dtype;
  record.count = data.count;
  record.layout = data.layout;
  record.root_or_peer = message.peer;
  record.group = group;
  record.tag = message.tag;
  record.sequence = message.id.sequence;
  record.digest = message.id.digest;
  record.site = message.site;
  record.began_ns = to_ns(began);
  return record;
}

// Casts constness away: a send only reads its memory.
GroupMessage sent(const OutgoingMessage& message) {
  const ConstBuffer& data = message.data;
  const Buffer memory{
      const_cast<std::byte*>(data.data), data.count, data.dtype, data.device, data.layout, data.list};
  const int64_t flat[] = {static_cast<int64_t>(count_of_items(data.count, data.layout))};
  GroupMessage made{memory, message.peer, message.tag, true, message.site, message.place};
  made.number = message.place.number;
  made.bundle = message.bundle;
  made.description = describe_array(data.dtype, message.shape.value_or(flat), data.layout);
  return made;
}

GroupMessage expected(const IncomingMessage& message) {
  const auto& [data, peer, tag, site, place, bundle, stream] = message;
  return {data, peer, tag, false, site, place, place.number, bundle};
}

// `bundle` is null if any content is accepted.
GroupMessage found_as(const FoundMessage& found, const Buffer& data, std::optional<uint64_t> bundle) {
  GroupMessage message{data, found.peer, found.tag, false, found.site, {}, found.number, bundle.value_or(0)};
  if (!bundle) message.digest = found.digest;
  return message;
}

}  // namespace

GroupMessages::GroupMessages(const GroupParts& parts, uint32_t group, std::shared_ptr<GroupState> shared,
                             double timeout_s)
    : parts_(parts),
      group_(group),
      shared_(std::move(shared)),
      timeout_s_(timeout_s) {}

Status GroupMessages::check(const GroupMessage& message) const {
  PC_TRY(check_message(message.data, message.peer, shared_->calls.names().size(),
                       message.sends ? "send to" : "recv from"));
  return message.goes_on() ? shared_->goes_on() : shared_->usable();
}

GroupCall GroupMessages::number(GroupMessage& message, TimePoint began) {
  const auto& [data, peer, tag, sends, site, place, number, bundle, found_digest, description, id] = message;
  const uint64_t sequence = number != 0 ? number : shared_->messages.take(peer, tag, sends);
  if (place.used != nullptr) *place.used = true;
  const bool compares = parts_.check != Check::kOff && (message.is_whole() || message.is_offer());
  // The parts after an offer need no digest: the offer has been compared, and sizes are always
  // compared.
  const uint64_t fingerprint = found_digest ? *found_digest
                               : compares   ? digest_of_message(shared_->calls.identity(), tag, sequence,
                                                                data.dtype, data.count, data.layout, bundle)
                                            : 0;
  const uint64_t digest = message.is_offer() ? fingerprint | kOfferBit : fingerprint;
  message.id = {{group_ | place_of(place.part), StreamClass::kPointToPoint, tag}, sequence, 0, digest};
  const CallRecord record = message_record(message, group_, began);
  return {.ticket = parts_.calls.messages->begin(record), .began = began};
}

void GroupMessages::post(const GroupCall& call, MessageOperation& started) {
  Reactor& reactor = *parts_.calls.reactor;
  const GroupMessage& message = started.message();
  const Rank to = shared_->calls.names().to_world(message.peer);
  started.set_posted(call, message.sends ? post_send(*parts_.transport, reactor, to, message.id,
                                                     {message.payload()}, message.description, started.how())
                                         : post_recv(*parts_.transport, reactor, to, message.id,
                                                     message.payload(), started.how()));
}

void GroupMessages::post(TimePoint began, MessageOperation& started) {
  const std::unique_lock issue_order = shared_->messages.issue_order();
  post(number(started.message(), began), started);
}

// Sends or receives a small message without creating an operation, if the two ranks share memory.
// Returns false if an operation is needed.
bool GroupMessages::exchange_at_once(const GroupMessage& message, double timeout_s) {
  // seconds; recv_at_once() waits briefly without checking the deadline, which must be at least
  // this far away
  constexpr double kLongEnough = 1e-3;
  const std::size_t nbytes = message.is_offer() ? 0 : message.data.nbytes();
  if (nbytes > kEagerBytes || message.data.list != nullptr) return false;
  const Rank to = shared_->calls.names().to_world(message.peer);
  if (message.sends) {
    const std::span<const char> description(message.description);
    const std::span<const std::byte> payload(message.data.data, nbytes);
    return parts_.transport->send_at_once(to, {message.id, payload, nullptr, 0, std::as_bytes(description)});
  }
  return timeout_s >= kLongEnough &&
         parts_.transport->recv_at_once(to, {message.id, {message.data.data, nbytes}, nbytes});
}

void GroupMessages::count_and_poll() {
  constexpr uint32_t kSeldom = 128;
  if (at_once_.fetch_add(1, std::memory_order_relaxed) % kSeldom == kSeldom - 1) parts_.transport->poll();
}

Status GroupMessages::exchange(GroupMessage message, double timeout_s, uint64_t* number) {
  PC_TRY(check(message));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  const TimePoint began = now();
  std::unique_lock issue_order = shared_->messages.issue_order();
  const GroupCall call = this->number(message, began);
  if (number != nullptr) *number = message.id.sequence;
  if (!message.sends) issue_order.unlock();  // recv_at_once() may wait
  if (exchange_at_once(message, seconds)) {
    if (issue_order.owns_lock()) issue_order.unlock();
    shared_->calls.done(call);
    count_and_poll();
    return Status::ok();
  }
  MessageOperation started(*shared_, std::move(message));
  post(call, started);
  if (issue_order.owns_lock()) issue_order.unlock();
  const Status ended = received(started, context_for(seconds, began, started.message().place.stop));
  if (number != nullptr && started.unannounced()) *number = 0;
  return ended;
}

// Waits until the operation has ended. If the sender offered the message instead of sending it,
// requests and receives the data.
Status GroupMessages::received(MessageOperation& started, const WaitContext& context) {
  if (!started.was_offered(context)) {
    const Status ended = started.finish(context);
    if (started.refuses_offer()) refuse(started);
    return ended;
  }
  GroupMessage data = started.message();
  data.number = data.id.sequence;
  const ConstBuffer array = data.data;
  MessageGo go;
  answer(started, {MessageAnswer::Word::kThroughHost, {}});
  const MessagePlace place{MessagePart::kGo, data.number, data.place.stop, &array};
  const Status got = recv({buffer_of(go), data.peer, data.tag, data.site, place},
                          std::max(context.deadline.remaining_s(), kOfferGraceS));
  if (!got.is_ok()) return refuse_data(data.peer, data.tag, data.number), got;
  PC_TRY(go.status(data.peer).with_rank(shared_->calls.names().rank()).with_operation(started.text()));
  data.digest = {};
  data.place.part = MessagePart::kData;
  MessageOperation moving(*shared_, std::move(data));
  post(now(), moving);
  WaitContext last = context;  // the sender now relies on this rank: allow at least kOfferGraceS
  last.deadline = Deadline(std::max(context.deadline.when(), Deadline::after(kOfferGraceS).when()));
  return moving.finish(last);
}

// Posts an empty receive for the data, which informs the sender at once that the data will not be
// received.
void GroupMessages::refuse_data(Rank peer, uint32_t tag, uint64_t number) {
  (void)begin_recv({{}, peer, tag, nullptr, {MessagePart::kData, number}}, {timeout_s_, {}});
}

void GroupMessages::refuse(const MessageOperation& offered) {
  const ConstBuffer array = offered.message().array();
  const std::string expected = array_text(array.dtype, array.count, array.layout);
  answer(offered,
         MessageAnswer::refused(offered.expects_offered() ? expected + " in memory of the host" : expected));
}

// Does not wait, because the progress thread calls it too. Errors are ignored: the send can fail
// only if the group has ended.
void GroupMessages::answer(const MessageOperation& offered, const MessageAnswer& answer) {
  const GroupMessage& message = offered.message();
  const auto kept = std::make_shared<std::pair<MessageAnswer, ConstBuffer>>(answer, message.array());
  const MessagePlace place{MessagePart::kAnswer, message.id.sequence, nullptr, &kept->second};
  (void)begin_send({bytes_of(kept->first), message.peer, message.tag, nullptr, place},
                   {timeout_s_, [kept](const Status&) {}});
}

Status GroupMessages::offer(const OutgoingMessage& message, double timeout_s, uint64_t* number) {
  *number = 0;
  GroupMessage offered = sent(message);
  offered.place.part = MessagePart::kOffer;
  offered.data.device = {};  // this function does not access the data
  offered.description = describe_offer(offered.data.nbytes(), offered.description);
  if (offered.description.size() > kMaxDescriptionBytes)
    offered.description = describe_offer(offered.data.nbytes(), {});
  const Status ended = exchange(std::move(offered), timeout_s, number);
  // A mismatch means that the receiver has already posted a receive for the data, so it will answer
  // the offer.
  return ended.code() == Code::kMismatch ? Status::ok() : ended;
}

Status GroupMessages::take_offer(const FoundMessage& offer, const ConstBuffer& expected,
                                 std::optional<uint64_t> bundle) {
  const Buffer memory{const_cast<std::byte*>(expected.data),
                      expected.count,
                      expected.dtype,
                      {},
                      expected.layout,
                      expected.list};
  GroupMessage message = found_as(offer, memory, bundle);
  message.place.part = MessagePart::kOffer;
  // The transport does not compare the size of an offered array, and without PYCOLLECTIVE_CHECK
  // there is no fingerprint. So if the sizes differ, this message gets a digest other than the
  // offer's, with which the exchange fails with kMismatch.
  if (expected.nbytes() != offer.nbytes) message.digest = (offer.digest ^ 1) & ~kOfferBit;
  return exchange(std::move(message), timeout_s_);  // does not wait for the sender: the offer has arrived
}

Result<std::shared_ptr<AsyncWork>> GroupMessages::begin(GroupMessage message, AsyncOptions how) {
  const TimePoint began = now();
  PC_TRY(check(message));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(how.timeout_s, timeout_s_));
  PC_TRY(parts_.progress->start());
  auto work = std::make_unique<MessageOperation>(shared_, std::move(message), *this);
  post(began, *work);
  return parts_.progress->add({std::move(work), Deadline::after(seconds, began), std::move(how.on_end)});
}

Status GroupMessages::send(const OutgoingMessage& message, double timeout_s) {
  if (message.place.part == MessagePart::kData) {  // sends "go" first: the data is ready now
    const MessageGo go{1, Code::kOk, {}};
    const auto& [part, number, stop, array, used] = message.place;
    const MessagePlace place{MessagePart::kGo, number, nullptr, &message.data, used};
    PC_TRY(exchange(sent({bytes_of(go), message.peer, message.tag, message.site, place}), kOfferGraceS));
    // The receiver now waits for the data, so the send gets at least kOfferGraceS.
    if (timeout_s >= 0) timeout_s = std::max(timeout_s, kOfferGraceS);
  }
  return exchange(sent(message), timeout_s);
}

Status GroupMessages::recv(const IncomingMessage& message, double timeout_s) {
  return exchange(expected(message), timeout_s);
}

Result<FoundMessage> GroupMessages::find(const IncomingMessage& message, double timeout_s) {
  const auto& [data, peer, tag, site, place, bundle, stream] = message;
  if (peer != kAnyRank) PC_TRY(check_message({}, peer, shared_->calls.names().size(), "recv from"));
  PC_TRY(place.number == 0 ? shared_->usable() : shared_->goes_on());
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  const TimePoint began = now();
  CallRecord record = message_record(expected(message), group_, began);
  record.kind = CallRecord::Kind::kProbe;
  if (place.used != nullptr) *place.used = true;
  MessageSearch search(*shared_, *parts_.transport, *parts_.calls.reactor, message, group_);
  const GroupCall call{.ticket = parts_.calls.messages->begin(record), .began = began};
  PC_ASSIGN_OR_RETURN(FoundMessage found, search.wait(call, context_for(seconds, began, place.stop)));
  std::string array;
  found.is_offer = is_offer(found.digest) && read_offer(found.description, &found.nbytes, &array);
  if (found.is_offer) found.description = std::move(array);
  return found;
}

Status GroupMessages::recv(Buffer data, const FoundMessage& found, std::optional<uint64_t> bundle) {
  GroupMessage message = found_as(found, data, bundle);
  if (const Status refused = check(message); !refused.is_ok()) return put_back(found), refused;
  const TimePoint began = now();
  MessageOperation started(*shared_, std::move(message));
  post(began, started);
  WaitContext context = context_for(0, began, nullptr);
  context.deadline = found.deadline;
  return received(started, context);
}

Status GroupMessages::sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag,
                               double timeout_s) {
  const GroupNames& names = shared_->calls.names();
  PC_TRY(check_sendrecv(out.data, out.peer, in, source, names.rank(), names.size()));
  PC_TRY(shared_->usable());
  if (out.peer == names.rank()) {
    if (in.nbytes() != 0) std::memcpy(in.data, out.data.data, in.nbytes());
    return Status::ok();
  }
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  const TimePoint began = now();
  MessageOperation sending(*shared_, sent(out)), receiving(*shared_, {in, source, tag, false, out.site});
  post(began, receiving);
  post(began, sending);
  const Status received = this->received(receiving, context_for(seconds, began, nullptr));
  // The send must be finished even if the receive failed, because its receiver still expects the
  // message.
  const Status left = sending.finish(context_for(seconds, began, nullptr));
  return received.is_ok() ? left : received;
}

Result<std::shared_ptr<AsyncWork>> GroupMessages::begin_send(const OutgoingMessage& message,
                                                             AsyncOptions how) {
  return begin(sent(message), std::move(how));
}

Result<std::shared_ptr<AsyncWork>> GroupMessages::begin_recv(const IncomingMessage& message,
                                                             AsyncOptions how) {
  return begin(expected(message), std::move(how));
}

uint64_t GroupMessages::take_number(Rank peer, uint32_t tag, bool sends) {
  const std::unique_lock issue_order = shared_->messages.issue_order();
  return shared_->messages.take(peer, tag, sends);
}

void GroupMessages::give_back(Rank peer, uint32_t tag, bool sends, uint64_t number) {
  shared_->messages.give_back(peer, tag, sends, number);
}

// `stop` is the interrupt probe of the wait. If it is null, the probe of the group is used.
WaitContext GroupMessages::context_for(double timeout_s, TimePoint began,
                                       const std::function<bool()>* stop) const {
  return {Deadline::after(timeout_s, began), shared_->calls.word(),
          stop != nullptr ? stop : parts_.interrupted, nullptr};
}

std::string GroupMessages::explain() const {
  const GroupNames& names = shared_->calls.names();
  std::map<std::string_view, std::string> ranks;  // lists of ranks, by path
  for (Rank peer = 0; peer < names.size(); ++peer) {
    if (peer == names.rank()) continue;
    std::string& text = ranks[parts_.transport->path_to(names.to_world(peer))];
    text += (text.empty() ? "" : ", ") + std::to_string(peer);
  }
  std::string text =
      "messages of rank " + std::to_string(names.rank()) + " of " + std::to_string(names.size()) + "\n";
  for (const auto& [path, peers] : ranks) text += std::string(path) + ": with ranks " + peers + "\n";
  return text +
         "up to 64 KiB they are sent before they are asked for, as long as 1 MiB or 1024 of them wait at "
         "most\n";
}

}  // namespace pc
