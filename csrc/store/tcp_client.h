// A store on another host or process, over TCP.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/store.h"
#include "wire/credentials.h"

namespace pc {

// Tries the addresses, numeric "ip:port" each, in turn, again and again, until one proves to be the store of this job or the
// deadline passes. The error says what was tried, how often, and what came of it. Where a store of this job has
// another key and no other one comes, the search ends after a second. `interrupted` (Ctrl-C) is asked about every 50 ms, in this
// and in every later wait. A store of another epoch of this job is about to go: it is not taken, and asked again. Calls of several threads do not wait for each other: each uses a connection of its own.
struct StoreConnection {
  std::unique_ptr<Store> store;
  std::string local_ip;  // this end of the connection: the address of this host on the way to the store's
};
Result<StoreConnection> connect_tcp_store(const std::vector<std::string>& addresses,
                                          const Credentials& credentials, Deadline deadline,
                                          std::function<bool()> interrupted = {}, uint32_t epoch = 0);

}  // namespace pc
