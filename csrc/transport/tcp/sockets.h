// Socket options for the network path of a connection. Every option is a hint: an option that the
// kernel refuses keeps its old value.
#pragma once

#include "net/socket.h"

namespace pc {

// Call it before connect or listen, because the window scale is negotiated in the first packet.
void use_large_buffers(int fd);
void tune_connection(int fd);  // call it once connected

}  // namespace pc
