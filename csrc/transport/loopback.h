// A transport for messages that may be to this rank itself: those stay in this process, all others go by another one.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace pc {

// `others` carries what goes to other ranks, outlives it and is connected and shut down by its owner; null: there are
// none. abort() ends the messages of this rank to itself alone.
std::unique_ptr<Transport> make_loopback_transport(Rank rank, Transport* others);

}  // namespace pc
