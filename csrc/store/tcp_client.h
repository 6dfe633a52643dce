// A store in another process or on another host, over TCP.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/store.h"
#include "wire/credentials.h"

namespace pc {

// Tries the addresses, numeric "ip:port" each, one after the other and repeatedly, until one proves
// to be the store of this job or the deadline passes. The error lists what was tried, how often,
// and the results. If a store of this job has another key and no other store is found, the search
// ends after a second. `interrupted` (Ctrl-C) is called about every 50 ms, in this and in every
// later wait. A store of another epoch of this job is about to end: it is not used, and its address
// is tried again. Calls of several threads do not wait for each other: each uses its own
// connection.
struct StoreConnection {
  std::unique_ptr<Store> store;
  std::string local_ip;  // this end of the connection: the address from which this host reaches the store
};
Result<StoreConnection> connect_tcp_store(const std::vector<std::string>& addresses,
                                          const Credentials& credentials, Deadline deadline,
                                          std::function<bool()> interrupted = {}, uint32_t epoch = 0);

}  // namespace pc
