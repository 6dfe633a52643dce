#include "failure/array_description.h"

#include <limits>

#include "wire/frame.h"

namespace pc {
namespace {

constexpr std::size_t kMaxDims = 64;  // as in NumPy
constexpr uint64_t kMostItems = std::numeric_limits<int64_t>::max();

Status no_description(const char* why) {
  return Status(Code::kMismatch, std::string("the message does not say what it is: ") + why);
}

void put_length(std::string& to, uint64_t length) {
  for (; length >= 0x80; length >>= 7) to += static_cast<char>(length | 0x80);
  to += static_cast<char>(length);
}

// Returns false if the number is cut short or too large.
bool take_length(std::string_view& from, int64_t& length) {
  uint64_t value = 0;
  for (unsigned shift = 0; !from.empty() && shift < 63; shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(from.front());
    from.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return length = static_cast<int64_t>(value), true;
  }
  return false;
}

}  // namespace

std::string describe_array(DType dtype, std::span<const int64_t> shape, const Layout* layout) {
  std::string text{static_cast<char>(dtype), static_cast<char>(shape.size())};
  for (const int64_t length : shape) put_length(text, static_cast<uint64_t>(length));
  if (layout != nullptr) text += layout->text;
  return shape.size() <= kMaxDims && text.size() <= kMaxDescriptionBytes ? text : std::string();
}

Result<ArrayDescription> described_array(std::string_view description, uint64_t nbytes) {
  if (description.empty()) return no_description("what describes its dtype is too long");
  if (description.size() < 2) return no_description("the description is cut short");
  ArrayDescription array;
  array.nbytes = nbytes;
  const uint8_t dtype = static_cast<uint8_t>(description[0]);
  if (dtype >= kDTypeCount) return no_description("an unknown dtype");
  array.dtype = static_cast<DType>(dtype);
  const std::size_t ndim = static_cast<uint8_t>(description[1]);
  if (ndim > kMaxDims) return no_description("too many dimensions");
  description.remove_prefix(2);
  uint64_t items = 1;
  bool empty = false;
  for (std::size_t i = 0; i < ndim; ++i) {
    int64_t length = 0;
    if (!take_length(description, length)) return no_description("a length is cut short");
    array.shape.push_back(length);
    empty = empty || length == 0;
    const uint64_t factor = static_cast<uint64_t>(length == 0 ? 1 : length);
    if (items > kMostItems / factor) return no_description("its shape is too large");
    items *= factor;
  }
  if (empty) items = 0;
  array.layout = description;
  const bool is_opaque = array.dtype == DType::kOpaque;
  const uint64_t item_nbytes = size_of(array.dtype);
  const bool fits = is_opaque ? (items == 0 ? nbytes == 0 : nbytes % items == 0)
                              : items <= kMostItems / item_nbytes && nbytes == items * item_nbytes;
  if (!fits || (!is_opaque && !array.layout.empty()))
    return no_description("the description does not fit its size");
  return array;
}

}  // namespace pc
