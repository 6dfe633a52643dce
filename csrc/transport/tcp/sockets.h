// What our sockets want from the kernel, for the path they take. Every option is a hint: what it refuses is left as it is.
#pragma once

#include "net/socket.h"

namespace pc {

void use_large_buffers(
    int fd);  // before connect or listen: the window scale is agreed upon in the first packet
void tune_connection(int fd);  // once connected

}  // namespace pc
