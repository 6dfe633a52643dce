// The fingerprint of a call: 64 bits that travel in every message of it, so that ranks that
// disagree detect it before a byte is used. It covers what must be equal on all ranks, and nothing
// else.
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

// Distinguishes the calls of a group from those of every other group: covers the group's number and
// its ordered members.
uint64_t identity_of(uint32_t group, std::span<const Rank> world_ranks);
// Returns the fingerprint of a call in the group with this identity.
uint64_t digest_of(const Request& request, const Choice& choice, uint64_t identity, Rank size,
                   uint64_t sequence);
// Distinguishes lists of uneven parts; returns 0 if the parts are equal.
uint64_t parts_of(const Request& request);
// The fingerprint used in place of a call's when a rank leaves instead of making the call.
uint64_t digest_of_leaving(uint64_t identity, uint64_t sequence);
// `bundle` is Request::bundle.
uint64_t digest_of_message(uint64_t identity, uint32_t tag, uint64_t sequence, DType dtype, uint64_t count,
                           const Layout* layout = nullptr, uint64_t bundle = 0);
// digest_of_message() clears this bit; it marks messages that are offered before they are sent.
inline constexpr uint64_t kOfferBit = uint64_t{1} << 63;
inline bool is_offer(uint64_t digest) { return (digest & kOfferBit) != 0; }
// Describes what the other side of a message sent or expects, derived from its fingerprint:
// "float64[500]". Returns an empty text if no dtype matches, or if it is opaque.
std::string message_found(uint64_t identity, const MessageId& found, uint64_t nbytes);

// The same call as lines of "name=value", for the ranks to compare when they disagree; `call_text`
// makes it readable: "allreduce float32[1000] sum (ring)". A send or recv is one readable line.
std::string fields_of(const CallRecord& record);
std::string call_text(std::string_view fields);

// For errors: "allreduce #12 (ring, 64 MiB float32 sum)", "send to rank 1, tag 0 (8 B uint8)".
std::string operation_text(const Request& request, const Choice& choice, Rank size, uint64_t sequence);
std::string message_text(std::string_view verb, Rank peer, uint32_t tag, const ConstBuffer& data);

}  // namespace pc
