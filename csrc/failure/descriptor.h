// The fingerprint of a call: 64 bits that every message of the call contains. Ranks that make
// different calls detect this before they use any data. The fingerprint covers exactly what must be
// equal on all ranks.
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

// Returns a hash of the group's number and its ordered members. It distinguishes the calls of this
// group from those of every other group.
uint64_t identity_of(uint32_t group, std::span<const Rank> world_ranks);
// Returns the fingerprint of a call in the group with this identity.
uint64_t digest_of(const Request& request, const Choice& choice, uint64_t identity, Rank size,
                   uint64_t sequence);
// Returns a hash of the sizes of uneven parts, or 0 if the parts are equal.
uint64_t parts_of(const Request& request);
// Returns the fingerprint that a rank sends for a call if it leaves instead of making the call.
uint64_t digest_of_leaving(uint64_t identity, uint64_t sequence);
// `bundle` is Request::bundle.
uint64_t digest_of_message(uint64_t identity, uint32_t tag, uint64_t sequence, DType dtype, uint64_t count,
                           const Layout* layout = nullptr, uint64_t bundle = 0);
// Marks the digest of a message that is offered before it is sent. digest_of_message() clears this
// bit.
inline constexpr uint64_t kOfferBit = uint64_t{1} << 63;
inline bool is_offer(uint64_t digest) { return (digest & kOfferBit) != 0; }
// Describes the array that the peer of a message sent or expects, for example "float64[500]". The
// description is derived from the fingerprint of the peer's message. Returns an empty text if no
// dtype matches, or if the dtype is opaque.
std::string message_found(uint64_t identity, const MessageId& found, uint64_t nbytes);

// fields_of() returns a recorded call as lines of "name=value", so that the calls of different
// ranks can be compared. call_text() makes these lines readable: "allreduce float32[1000] sum
// (ring)". For a send or recv, fields_of() already returns a readable line.
std::string fields_of(const CallRecord& record);
std::string call_text(std::string_view fields);

// For errors: "allreduce #12 (ring, 64 MiB float32 sum)", "send to rank 1, tag 0 (8 B uint8)".
std::string operation_text(const Request& request, const Choice& choice, Rank size, uint64_t sequence);
std::string message_text(std::string_view verb, Rank peer, uint32_t tag, const ConstBuffer& data);

}  // namespace pc
