// One Link against a peer that writes anything: valid frames, wrong ones, noise with a right
// checksum. LinkHostile.* runs it with seeded random input. With clang, -fsanitize=fuzzer on this
// file alone gives a coverage-guided fuzzer.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "wire/link.h"

namespace {

using namespace pc;

constexpr LinkLimits kLimits = {
    .segment_bytes = 256, .eager_bytes = 128, .credit_bytes = 1024, .max_requests = 4};

void require(bool condition) {
  if (!condition) __builtin_trap();
}

class Once final : public CompletionSink {
 public:
  void complete(Completion&& completion) override {
    if (completion.token == kLateMismatchToken) return;  // completes no operation
    require(completion.token < open.size() && open[completion.token]);
    open[completion.token] = false;
  }
  uint64_t begin() {
    open.push_back(true);
    return open.size() - 1;
  }
  std::vector<bool> open;
};

class InOrder final : public SegmentSink {
 public:
  void consume(uint64_t offset, std::span<const std::byte> data) override {
    uint32_t sum = 0;
    for (const std::byte byte : data)
      sum += static_cast<uint32_t>(byte);  // reads all of it, so that a sanitizer checks the access
    total += sum + offset;
  }
  uint64_t total = 0;
};

class Input {
 public:
  Input(const uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  uint32_t next() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }

 private:
  const uint8_t* data_;
  std::size_t size_;
};

constexpr uint64_t kSizes[] = {0, 1, 64, 128, 129, 192, 256, 320, 512, 1000, uint64_t{1} << 40, ~uint64_t{0}};

MessageId id_from(Input& input) {
  const uint32_t bits = input.next();
  const StreamClass klass = bits & 128 ? StreamClass::kCollective : StreamClass::kPointToPoint;
  return {{0, klass, bits & 1}, (bits >> 1) & 3, 0, bits & 64 ? 2u : 1u};
}

FrameHeader header_from(Input& input) {
  FrameHeader h;
  h.type = static_cast<FrameType>(1 + input.next() % 9);
  h.epoch = 5;
  h.id = id_from(input);
  const uint32_t odd = input.next();
  if (odd % 16 == 0) h.epoch = 4 + (odd >> 4) % 3;
  if (h.type == FrameType::kCredit || h.type == FrameType::kGoodbye)
    h.id = {{0, StreamClass::kControl, 0}, 0, 0, 0};
  if (h.type != FrameType::kCredit && h.type != FrameType::kGoodbye && h.type != FrameType::kCancel)
    h.message_nbytes = kSizes[input.next() % 12];
  if (h.type == FrameType::kData || h.type == FrameType::kCredit) h.offset = kSizes[input.next() % 12];
  if (h.type == FrameType::kData) h.segment_nbytes = static_cast<uint32_t>(kSizes[input.next() % 10]);
  const uint32_t wish = input.next();
  h.flags = static_cast<uint8_t>(wish % 8 == 0 ? wish >> 6 : 0);
  if ((h.type == FrameType::kClear || h.type == FrameType::kRequest) && wish % 8 == 1)
    h.flags = kFlagWithdrawn;
  if (h.type == FrameType::kCancel) {
    h.id.stream.klass = StreamClass::kPointToPoint;
    h.flags = static_cast<uint8_t>(wish & (kFlagByReceiver | kFlagAnswer));
    h.offset = wish >> 4;
  }
  if (h.type == FrameType::kData && wish % 4 == 2) {  // by chance alone these would be rare
    h.flags = kFlagEager;
    h.offset = 0;
    h.segment_nbytes = static_cast<uint32_t>(h.message_nbytes & 0xff);
    h.message_nbytes = h.segment_nbytes;
  }
  if (wish % 4 == 3 && h.id.stream.klass == StreamClass::kPointToPoint) h.description_nbytes = odd;
  return h;
}

struct World final : FrameIo {
  // Reads the oldest unwritten frame for the last time, so that a sanitizer checks the access.
  void written() {
    if (unwritten.empty()) return;
    unwritten.front().each([this](std::span<const std::byte> piece) { consumer.consume(0, piece); });
    unwritten.pop_front();
    link.written();
  }
  void keep_unsent() override {
    for (ConstIoVec& payload : unwritten) {
      payload.each([this](std::span<const std::byte> piece) { consumer.consume(0, piece); });
      payload = {};
    }
  }
  void redirect(std::span<std::byte> there) override { arriving = there; }
  void cancel() {
    static_cast<void>(link.cancel(&once, Status(Code::kInterrupted, "Ctrl-C")));
    once.open.assign(once.open.size(), false);
    memory.clear();
  }

  Link link{0, 1, 5, kLimits, this};
  std::deque<ConstIoVec> unwritten;
  std::span<std::byte> arriving;
  Once once;
  std::string described;
  InOrder consumer;
  std::vector<std::vector<std::byte>> memory;  // separate allocations, so that a sanitizer detects overruns
};

// Returns true if the link is still usable.
bool arrive(World& world, Input& input) {
  HeaderBytes bytes;
  encode(header_from(input), bytes);
  const Result<FrameHeader> header = decode(bytes);
  Status status = header.status();
  if (header.is_ok()) {
    const std::vector<std::byte> description(header.value().description_nbytes, std::byte{'d'});
    const Result<PayloadDestination> to = world.link.header_arrived(header.value(), description);
    status = to.status();
    if (status.is_ok() && header.value().segment_nbytes > 0) {
      world.arriving = to.value().where;
      require(world.arriving.size() == header.value().segment_nbytes);
      const std::vector<std::byte> payload(world.arriving.size(), std::byte{7});
      const uint32_t how = input.next();
      if (how % 16 == 5) world.cancel();
      if (how % 16 == 6) world.link.discard(0, how >> 4 & 3);
      if ((how & 1) != 0) {
        status = world.link.payload_arrived_at(payload);
      } else {
        std::memcpy(world.arriving.data(), payload.data(), payload.size());
        status = world.link.payload_arrived();
      }
    }
  }
  // A frame I/O closes at the first error. Continuing reaches deeper states, in which every
  // guarantee must hold as well.
  if (status.is_ok() || input.next() % 64 != 0) return true;
  world.unwritten.clear();
  world.link.fail(status);
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  Input input(data, size);
  World world;
  bool lives = true;
  while (lives && !input.empty()) {
    const uint32_t choice = input.next(), what = choice % 8;
    if (choice == 255) world.link.send_goodbye();
    if (choice == 254) world.cancel();
    if (choice == 253) world.link.discard(0, input.next() & 3);
    if (choice == 252)
      world.link.post_probe({id_from(input), &world.once, world.once.begin(), &world.described});
    if (what < 4) {
      lives = arrive(world, input);
    } else if (what == 4 || what == 5) {
      const MessageId id = id_from(input);
      world.memory.emplace_back(kSizes[input.next() % 10]);
      std::vector<std::byte>& at = world.memory.back();
      if (what == 4) {
        const bool describes = id.stream.klass == StreamClass::kPointToPoint;
        world.link.post_send({id, at, &world.once, world.once.begin(),
                              std::span<const std::byte>(at).first(
                                  describes ? std::min(at.size(), kMaxDescriptionBytes) : 0)});
      } else if ((input.next() & 1) != 0) {
        world.link.post_recv({id, {}, at.size(), &world.consumer, &world.once, world.once.begin()});
      } else {
        world.link.post_recv({id, at, at.size(), nullptr, &world.once, world.once.begin()});
      }
    } else if (std::optional<OutFrame> out = world.link.next_frame(); out) {
      require(check(out->header).is_ok());
      world.unwritten.push_back(out->payload);
      while (world.unwritten.size() > input.next() % 4) world.written();
    }
    const Link::Counts held = world.link.counts();
    require(held.unexpected * kHeaderBytes + held.unexpected_nbytes <= kLimits.credit_bytes);
    require(held.requests <= kLimits.max_requests && held.clears <= kLimits.max_requests);
    require(held.early_clears <= kLimits.max_requests);
  }
  world.link.fail(Status(Code::kAborted, "the end"));
  for (const bool open : world.once.open) require(!open);
  return 0;
}
