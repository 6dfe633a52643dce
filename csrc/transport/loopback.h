// A transport that delivers messages of this rank to itself within this process, and passes all
// other messages on to another transport.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace pc {

// `others` carries the messages to other ranks. It outlives this transport, and its owner connects
// it and shuts it down. Pass null if there are no other ranks. abort() ends only the messages of
// this rank to itself.
std::unique_ptr<Transport> make_loopback_transport(Rank rank, Transport* others);

}  // namespace pc
