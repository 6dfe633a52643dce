// The fingerprint of a call: 64 bits that travel in every message of it, so that ranks which disagree find out before a
// byte is used. Made of what must be equal on all ranks, and of nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/flight_recorder.h"
#include "engine/request.h"
#include "tuning/selection.h"
#include "wire/frame.h"

namespace pc {

constexpr uint32_t kWorldGroup = 0;  // the number of the group of all ranks

// What tells a group from all others in the fingerprints of its calls: its number, and its members in their order.
uint64_t identity_of(uint32_t group, std::span<const Rank> world_ranks);
// Of a call in the group of this identity.
uint64_t digest_of(const Request& request, const Choice& choice, uint64_t identity, Rank size,
                   uint64_t sequence);
// Tells one list of uneven parts from another; 0: they are equal.
uint64_t parts_of(const Request& request);
// What stands in the place of a call where a rank leaves instead of making it.
uint64_t digest_of_leaving(uint64_t identity, uint64_t sequence);
// `bundle`: Request::bundle.
uint64_t digest_of_message(uint64_t identity, uint32_t tag, uint64_t sequence, DType dtype, uint64_t count,
                           const Layout* layout = nullptr, uint64_t bundle = 0);
// Which leaves this bit to messages that are offered before they are sent.
inline constexpr uint64_t kOfferBit = uint64_t{1} << 63;
inline bool is_offer(uint64_t digest) { return (digest & kOfferBit) != 0; }
// What the other side of a message sent or expects, found by its fingerprint: "float64[500]"; empty: no dtype fits, or it
// is opaque.
std::string message_found(uint64_t identity, const MessageId& found, uint64_t nbytes);

// The same as lines of "name=value", for the ranks to compare when they disagree; `call_text` makes it readable:
// "allreduce float32[1000] sum (ring)". A send or recv is one readable line.
std::string fields_of(const CallRecord& record);
std::string call_text(std::string_view fields);

// For errors: "allreduce #12 (ring, 64 MiB float32 sum)", "send to rank 1, tag 0 (8 B uint8)".
std::string operation_text(const Request& request, const Choice& choice, Rank size, uint64_t sequence);
std::string message_text(std::string_view verb, Rank peer, uint32_t tag, const ConstBuffer& data);

}  // namespace pc
