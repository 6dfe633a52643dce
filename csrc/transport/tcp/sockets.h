// Socket options for the network path of a connection. Every option is a hint: one that the kernel
// refuses stays as it is.
#pragma once

#include "net/socket.h"

namespace pc {

void use_large_buffers(
    int fd);  // call it before connect or listen: the window scale is negotiated in the first packet
void tune_connection(int fd);  // call it once connected

}  // namespace pc
