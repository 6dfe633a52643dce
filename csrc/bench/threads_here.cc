#include "bench/threads_here.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "bench/ranks_here.h"
#include "store/tcp_server.h"

namespace pc::bench {

int run_threads_here(Rank count, const std::function<Status(const Place&)>& run) {
  const Result<Credentials> job = new_job();
  if (!job.is_ok()) return complain(job.status());
  const Result<std::unique_ptr<TcpStoreServer>> server = TcpStoreServer::open({"127.0.0.1:0"}, job.value());
  if (!server.is_ok()) return complain(server.status());
  std::vector<Status> ends(static_cast<std::size_t>(count));
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < count; ++rank) {
    ranks.emplace_back([&, rank] {
      ends[static_cast<std::size_t>(rank)] =
          run({rank, count, {server.value()->addresses().front()}, {}, job.value()});
    });
  }
  for (std::thread& each : ranks) each.join();
  std::erase_if(ends, [](const Status& end) { return end.is_ok(); });
  const auto cause = std::min_element(ends.begin(), ends.end(), is_rather_the_cause);
  return cause == ends.end() ? 0 : complain(*cause);
}

}  // namespace pc::bench
