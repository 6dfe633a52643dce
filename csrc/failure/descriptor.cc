#include "failure/descriptor.h"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace pc {
namespace {

// A hash of a sequence of fields, with the mixer of SplitMix64, which has full avalanche. It
// detects accidental differences; it is not cryptographic.
class Digest {
 public:
  Digest& operator<<(uint64_t field) {
    state_ += 0x9e3779b97f4a7c15u + field;
    state_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
    state_ = (state_ ^ (state_ >> 27)) * 0x94d049bb133111ebu;
    state_ ^= state_ >> 31;
    return *this;
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

std::string nbytes_text(std::size_t nbytes) {
  constexpr std::string_view kUnits[] = {" B", " KiB", " MiB", " GiB"};
  int unit = 0;
  double value = static_cast<double>(nbytes);
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text + std::string(kUnits[unit]);
}

// FNV-1a.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char each : text) hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3u;
  return hash;
}

uint64_t hash_of(const Layout* layout) { return layout == nullptr ? 0 : layout->hash; }

}  // namespace

uint64_t parts_of(const Request& request) {
  if (request.counts.empty()) return 0;
  Digest digest;
  digest << request.counts.size();
  if (knows_size(request)) {
    for (const uint64_t count : request.counts) digest << count;
  }
  return digest.value();
}

uint64_t identity_of(uint32_t group, std::span<const Rank> world_ranks) {
  Digest digest;
  digest << group;
  for (const Rank rank : world_ranks) digest << static_cast<uint64_t>(rank);
  return digest.value();
}

uint64_t digest_of(const Request& request, const Choice& choice, uint64_t identity, Rank size,
                   uint64_t sequence) {
  const auto number = [](auto field) { return static_cast<uint64_t>(field); };
  Digest digest;
  digest << (identity << 8 | number(request.collective)) << sequence << choice.algorithm->name_hash;
  if (request.collective == Collective::kBarrier) return (digest << choice.split).value();
  const auto [count, dtype] = elements_of(request, size);
  digest << (uint64_t{choice.split} << 32 | (is_rooted(request.collective) ? number(request.root) : 0));
  digest << (number(dtype) << 8 | (reduces(request.collective) ? number(request.op.op) : 255));
  digest << (knows_size(request) ? count : 0);
  if (const uint64_t parts = parts_of(request); parts != 0) digest << parts;
  if (request.bundle != 0) digest << request.bundle;
  if (request.shape != nullptr) digest << hash_of(std::string_view(request.shape));
  if (dtype == DType::kOpaque) digest << hash_of(layout_of(request));
  if (reduces(request.collective) && request.op == ReduceOp::kScaledSum)
    digest << std::bit_cast<uint64_t>(request.op.factor);
  return digest.value();
}

uint64_t digest_of_leaving(uint64_t identity, uint64_t sequence) {
  Digest digest;
  digest << (identity << 8 | 254) << sequence;
  return digest.value();
}

uint64_t digest_of_message(uint64_t identity, uint32_t tag, uint64_t sequence, DType dtype, uint64_t count,
                           const Layout* layout, uint64_t bundle) {
  Digest digest;
  digest << (identity << 8 | 255) << tag << sequence << static_cast<uint64_t>(dtype) << count;
  if (dtype == DType::kOpaque) digest << hash_of(layout);
  if (bundle != 0) digest << bundle;
  return digest.value() & ~kOfferBit;
}

std::string message_found(uint64_t identity, const MessageId& found, uint64_t nbytes) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (nbytes % size_of(dtype) != 0) continue;
    const uint64_t count = nbytes / size_of(dtype);
    if (digest_of_message(identity, found.stream.tag, found.sequence, dtype, count) != found.digest) continue;
    return std::string(name_of(dtype)) + "[" + std::to_string(count) + "]";
  }
  return {};
}

std::string fields_of(const CallRecord& record) {
  const bool sends = record.kind == CallRecord::Kind::kSend;
  if (sends || record.kind == CallRecord::Kind::kRecv || record.kind == CallRecord::Kind::kProbe) {
    return std::string(sends ? "send to " : "recv from ") + rank_text(record.root_or_peer) + ", tag " +
           std::to_string(record.tag);
  }
  std::string text = "collective=" + std::string(name_of(record.collective));
  if (record.collective != Collective::kBarrier) {
    text += "\ndtype=" + text_of(record.dtype, record.layout) +
            "\ncount=" + std::to_string(count_of_items(record.count, record.layout));
    if (record.shape != nullptr) text += "\nshape=" + std::string(record.shape);
    if (reduces(record.collective)) text += "\nop=" + text_of({record.op, record.factor});
    if (is_rooted(record.collective)) text += "\nroot=" + std::to_string(record.root_or_peer);
    if (record.parts != 0) text += "\nparts=#" + std::to_string(record.parts % 10'000);
    if (record.bundle != 0) {
      text += "\nlist=" + std::to_string(arrays_of(record.bundle)) + " arrays, #" +
              std::to_string(record.bundle % 10'000);
    }
  }
  return text + "\nalgorithm=" + (record.algorithm != nullptr ? record.algorithm : "none");
}

std::string call_text(std::string_view fields) {
  const auto field = [fields](std::string_view name) -> std::string_view {
    for (std::string_view rest = fields; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == '=')
        return line.substr(name.size() + 1);
    }
    return {};
  };
  std::string text(field("collective"));
  if (text.empty()) return std::string(fields);
  if (!field("dtype").empty())
    text += " " + std::string(field("dtype")) + "[" + std::string(field("count")) + "]";
  if (!field("shape").empty()) text += " of shape " + std::string(field("shape"));
  if (!field("op").empty()) text += " " + std::string(field("op"));
  if (!field("root").empty()) text += ", root " + std::string(field("root"));
  if (!field("parts").empty()) text += ", uneven parts " + std::string(field("parts"));
  if (!field("list").empty()) text += ", list of " + std::string(field("list"));
  return text + " (" + std::string(field("algorithm")) + ")";
}

std::string operation_text(const Request& request, const Choice& choice, Rank size, uint64_t sequence) {
  std::string text(name_of(request.collective));
  text += " #" + std::to_string(sequence);
  if (!request.label.empty()) text += " '" + std::string(request.label) + "'";
  text += " (" + std::string(choice.algorithm != nullptr ? choice.algorithm->name : "local");
  if (request.collective != Collective::kBarrier) {
    const Elements elements = elements_of(request, size);
    text += ", " + nbytes_text(elements.nbytes()) + " " + text_of(elements.dtype, layout_of(request));
    if (reduces(request.collective)) text += " " + text_of(request.op);
    if (is_rooted(request.collective)) text += ", root " + std::to_string(request.root);
  }
  return text + ")";
}

std::string message_text(std::string_view verb, Rank peer, uint32_t tag, const ConstBuffer& data) {
  return std::string(verb) + " rank " + std::to_string(peer) + ", tag " + std::to_string(tag) + " (" +
         nbytes_text(data.nbytes()) + " " + text_of(data.dtype, data.layout) + ")";
}

}  // namespace pc
