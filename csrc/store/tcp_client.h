// A store in another process or on another host, over TCP.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/store.h"
#include "wire/credentials.h"

namespace pc {

struct StoreConnection {
  std::unique_ptr<Store> store;
  // local address of the connection: the address from which this host reaches the store
  std::string local_ip;
};
// Connects to the store of this job. Tries `addresses`, numeric "ip:port" each, one after the other
// and repeatedly, until one of them proves to be that store or the deadline passes. The error lists
// what was tried, how often, and the results. If a store of this job has another key and no other
// store is found, the search ends after a second. A store of another epoch of this job is about to
// end: it is not used, and its address is tried again. `interrupted` (Ctrl-C) is called about every
// 50 ms, in this and in every later wait. Calls of several threads do not wait for each other: each
// uses its own connection.
Result<StoreConnection> connect_tcp_store(const std::vector<std::string>& addresses,
                                          const Credentials& credentials, Deadline deadline,
                                          std::function<bool()> interrupted = {}, uint32_t epoch = 0);

}  // namespace pc
