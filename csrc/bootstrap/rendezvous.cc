#include "bootstrap/rendezvous.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "base/fields.h"
#include "bootstrap/store_keys.h"
#include "net/socket.h"

namespace pc {
namespace {

constexpr std::array<std::string_view, 3> kCheckNames = {"off", "on", "strict"};  // indexed by Check
constexpr double kNamingS = 0.5;  // reserved before the deadline to determine which ranks are missing

struct Member {
  Rank size = 0;
  std::string address;
  std::string endpoint;
  HostMap::Entry entry;
  int tcp_sockets = 1;
};

std::string encode_member(const Member& m) {
  return std::to_string(m.size) + kField + m.address + kField + m.entry.host_name + kField +
         m.entry.host_key + kField + std::to_string(m.entry.pid) + kField + m.entry.pid_key + kField +
         m.endpoint + kField + std::to_string(m.tcp_sockets) + kField + (m.entry.joins_gpus ? "1" : "0");
}

Result<Member> decode_member(Rank rank, std::string_view text) {
  PC_TRY(published_error(text));
  const std::vector<std::string_view> fields = cut(text, kField);
  Member m;
  if (fields.size() != 9 || !number_from(fields[0], m.size) || !number_from(fields[4], m.entry.pid) ||
      !number_from(fields[7], m.tcp_sockets)) {
    return Status(Code::kMismatch, "rank " + std::to_string(rank) +
                                       " published something unreadable; do all ranks run the same version?")
        .with_peer(rank);
  }
  m.address = fields[1];
  m.entry.host_name = fields[2];
  m.entry.host_key = fields[3];
  m.entry.pid_key = fields[5];
  m.endpoint = fields[6];
  m.entry.joins_gpus = fields[8] == "1";
  return m;
}

// Returns the ranks that have not begun their rendezvous. No query waits. If the deadline passes or
// the store fails, returns the missing ranks found so far.
std::vector<Rank> missing_ranks(Store& store, const Keys& keys, Rank size, Deadline deadline) {
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < size && !deadline.expired(); ++rank) {
    const Result<int64_t> came = store.add(keys.came(rank), 0, deadline);
    if (!came.is_ok()) break;
    if (came.value() == 0) missing.push_back(rank);
  }
  return missing;
}

std::string names_of(const std::vector<Rank>& ranks) {  // "1, 2, 5 and 7 more"
  constexpr std::size_t kNamed = 16;
  std::string names;
  for (std::size_t i = 0; i < std::min(ranks.size(), kNamed); ++i)
    names += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kNamed) names += " and " + std::to_string(ranks.size() - kNamed) + " more";
  return names;
}

Status explain_wait(Store& store, const Keys& keys, const RuntimeOptions& options, const Status& failed,
                    Deadline deadline) {
  if (failed.code() != Code::kTimeout) return failed;
  // This rank has published its own key. If even this key cannot be read, the store is at fault, so
  // the error names no missing ranks.
  const Deadline own = Deadline::after(std::max(deadline.remaining_s() / 2, 0.002));
  if (!store.get(keys.member(options.rank), own).is_ok()) return failed;
  const std::vector<Rank> missing = missing_ranks(store, keys, options.size, deadline);
  if (missing.empty()) return failed;
  return Status(Code::kTimeout,
                "of " + std::to_string(options.size) + " ranks these never came: " + names_of(missing) +
                    ". Look whether they were started with the same address and size, and at their output")
      .with_peer(missing.front());
}

// Called if two processes claim the same rank, so that another rank is missing. Publishes the error
// under the keys of all missing ranks, for which rank 0 waits.
Status report_taken_rank(Store& store, const Keys& keys, const RuntimeOptions& options,
                         const HostMap::Entry& here) {
  const Deadline soon = Deadline::after(kNamingS);
  const Result<std::string> text = store.get(keys.member(options.rank), Deadline::after(kNamingS / 2));
  const Result<Member> first = text.is_ok() ? decode_member(options.rank, text.value()) : text.status();
  const auto process_name = [](const HostMap::Entry& entry) {
    return "process " + std::to_string(entry.pid) + " on " + entry.host_name;
  };
  const std::string processes =
      first.is_ok() ? process_name(first.value().entry) + " and " : "another process and ";
  Status why = Status(Code::kMismatch,
                      "two processes say that they are rank " + std::to_string(options.rank) + ": " +
                          processes + process_name(here) +
                          ". Give every process its own rank; a second run needs its own address or store")
                   .with_peer(options.rank);
  for (const Rank missing : missing_ranks(store, keys, options.size, soon))
    (void)store.set(keys.member(missing), publish(why), Deadline::after(kNamingS));
  return why;
}

std::vector<std::string> ips_of(const std::string& addresses) {
  std::vector<std::string> ips;
  for (const std::string_view text : cut(addresses, ',')) {
    const Result<SocketAddress> address = parse_endpoint(text);
    ips.push_back(!address.is_ok()               ? std::string(text)
                  : is_loopback(address.value()) ? ""
                                                 : ip_of(address.value()));
  }
  return ips;  // "" stands for a loopback address
}

Status cannot_connect(const WorldInfo& world_info, Rank called, Rank caller) {
  const std::string& addresses = world_info.addresses[static_cast<std::size_t>(called)];
  const std::vector<std::string> ips = ips_of(addresses);
  const bool loopback = std::all_of(ips.begin(), ips.end(), [](const std::string& ip) { return ip.empty(); });
  const auto rank_name = [&](Rank rank) {
    return "rank " + std::to_string(rank) + " on host " +
           world_info.hosts.ranks[static_cast<std::size_t>(rank)].host_name;
  };
  constexpr const char* kMend =
      "Give rank 0 an address that all hosts reach (MASTER_ADDR, or init's address), or name in "
      "PYCOLLECTIVE_INTERFACE the interface by which they reach each other";
  return Status(Code::kInvalidArgument,
                rank_name(called) + " listens at " + addresses +
                    (loopback ? ", which is loopback: " : ", which the other host has as well: ") +
                    rank_name(caller) + " cannot reach it there. " + kMend)
      .with_peer(called);
}

// Every rank must connect to all lower ranks. Returns an error if a rank cannot, because every
// address of the lower rank leads back to the connecting host. So all ranks find this error now,
// without waiting for a deadline.
Status check_reachable(const WorldInfo& world_info) {
  const std::vector<HostMap::Entry>& ranks = world_info.hosts.ranks;
  const bool one_host = std::all_of(ranks.begin(), ranks.end(), [&](const HostMap::Entry& entry) {
    return entry.host_key == ranks.front().host_key;
  });
  if (one_host) return Status::ok();
  std::map<std::string, std::set<std::string_view>> hosts_of;  // host keys by IP
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (const std::string& ip : ips_of(world_info.addresses[i])) hosts_of[ip].insert(ranks[i].host_key);
  }
  for (std::size_t called = 0; called < ranks.size(); ++called) {
    const std::vector<std::string> ips = ips_of(world_info.addresses[called]);
    const auto unique = [&](const std::string& ip) { return !ip.empty() && hosts_of[ip].size() == 1; };
    if (std::any_of(ips.begin(), ips.end(), unique)) continue;
    for (std::size_t caller = called + 1; caller < ranks.size(); ++caller) {
      const auto leads_back = [&](const std::string& ip) {
        return ip.empty() || hosts_of[ip].contains(ranks[caller].host_key);
      };
      if (ranks[caller].host_key != ranks[called].host_key && std::all_of(ips.begin(), ips.end(), leads_back))
        return cannot_connect(world_info, static_cast<Rank>(called), static_cast<Rank>(caller));
    }
  }
  return Status::ok();
}

// Waits for `key`, which rank 0 or another rank sets. If that takes longer than warn_after_s, one
// warning names the missing ranks.
Result<std::string> await_key(Store& store, const Keys& keys, const RuntimeOptions& options,
                              const std::string& key, Deadline deadline, bool& warned) {
  if (!warned && deadline.remaining_s() > options.warn_after_s) {
    Result<std::string> soon = store.get(key, Deadline::after(options.warn_after_s));
    if (soon.is_ok() || soon.status().code() != Code::kTimeout) return soon;
    warned = true;
    const std::vector<Rank> missing = missing_ranks(store, keys, options.size, Deadline::after(kNamingS));
    if (!missing.empty()) {
      options.log.warning("init waits for long: of " + std::to_string(options.size) +
                          " ranks these have not come: " + names_of(missing));
    }
  }
  return store.get(key, deadline);
}

Result<Profile> profile_of(const RuntimeOptions& options) {
  if (options.tuning.empty()) return load_profile(options.profile, options.log);
  PC_ASSIGN_OR_RETURN(Tuning tuning, Tuning::parse(options.tuning));
  return Profile{std::move(tuning), "given to the runtime"};
}

std::string one_field(std::string text) {  // replaces the separators, which a path may contain
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == kField || c == kLine; }, '?');
  return text;
}

Result<std::string> gather(Store& store, const Keys& keys, const RuntimeOptions& options, Deadline deadline) {
  PC_ASSIGN_OR_RETURN(const SelectionTable table, SelectionTable::parse(options.tune));
  PC_ASSIGN_OR_RETURN(const Profile profile, profile_of(options));
  JobId world;
  PC_TRY(fill_randomly(world));
  std::string list = "ok " + std::string(kCheckNames[static_cast<std::size_t>(options.check)]) + " " +
                     options.transport + " " + fingerprint(world) + " " + table.to_string() + kField +
                     profile.tuning.to_string() + kField + one_field(profile.origin);
  bool warned = false;
  for (Rank rank = 0; rank < options.size; ++rank) {
    PC_ASSIGN_OR_RETURN(const std::string text,
                        await_key(store, keys, options, keys.member(rank), deadline, warned));
    PC_ASSIGN_OR_RETURN(const Member member, decode_member(rank, text));
    if (member.size != options.size) {
      return Status(Code::kMismatch, "rank " + std::to_string(rank) + " was started for " +
                                         std::to_string(member.size) + " ranks and rank 0 for " +
                                         std::to_string(options.size) + ": give all the same size")
          .with_peer(rank);
    }
    if (member.tcp_sockets != options.tcp_sockets) {
      return Status(Code::kMismatch,
                    "rank " + std::to_string(rank) +
                        " was started with PYCOLLECTIVE_TCP_SOCKETS=" + std::to_string(member.tcp_sockets) +
                        " and rank 0 with " + std::to_string(options.tcp_sockets) + ": give all the same")
          .with_peer(rank);
    }
    list += kLine + text;
  }
  return list;
}

Result<WorldInfo> read_list(const std::string& list, const RuntimeOptions& options) {
  if (const Status failed = published_error(list); !failed.is_ok()) {
    const bool another = failed.peer() >= 0 && failed.peer() != options.rank;
    return Status(failed.code(), "rank 0 could not start: " + failed.message())
        .with_peer(another ? failed.peer() : 0);
  }
  const std::vector<std::string_view> lines = cut(list, kLine);
  if (!lines[0].starts_with("ok "))
    return Status(Code::kMismatch, "rank 0 published something unreadable").with_peer(0);
  if (lines.size() != static_cast<std::size_t>(options.size) + 1) {
    return Status(Code::kMismatch, "rank 0 was started for " + std::to_string(lines.size() - 1) +
                                       " ranks and this one for " + std::to_string(options.size) +
                                       ": give all the same size")
        .with_peer(0);
  }
  WorldInfo world_info;
  const std::vector<std::string_view> fields = cut(lines[0], kField);
  if (fields.size() != 3)
    return Status(Code::kMismatch, "rank 0 published something unreadable").with_peer(0);
  PC_ASSIGN_OR_RETURN(world_info.profile.tuning, Tuning::parse(fields[1]));
  world_info.profile.origin = fields[2];
  const std::vector<std::string_view> words = cut(fields[0], ' ');
  const auto check =
      words.size() < 4 ? kCheckNames.end() : std::find(kCheckNames.begin(), kCheckNames.end(), words[1]);
  if (check == kCheckNames.end())
    return Status(Code::kMismatch, "rank 0 published something unreadable").with_peer(0);
  world_info.check = static_cast<Check>(check - kCheckNames.begin());
  world_info.transport = words[2];
  world_info.world = words[3];
  const std::size_t table_at =
      words[0].size() + words[1].size() + words[2].size() + words[3].size() + std::size_t{4};
  PC_ASSIGN_OR_RETURN(world_info.selection,
                      SelectionTable::parse(fields[0].substr(std::min(table_at, fields[0].size()))));
  for (Rank rank = 0; rank < options.size; ++rank) {
    PC_ASSIGN_OR_RETURN(Member member, decode_member(rank, lines[static_cast<std::size_t>(rank) + 1]));
    world_info.addresses.push_back(std::move(member.address));
    world_info.endpoints.push_back(std::move(member.endpoint));
    member.entry.domain = rank;
    world_info.hosts.ranks.push_back(std::move(member.entry));
  }
  const std::string& here = world_info.hosts.ranks[static_cast<std::size_t>(options.rank)].host_key;
  world_info.hosts.local_size = 0;
  for (Rank rank = 0; rank < options.size; ++rank) {
    if (world_info.hosts.ranks[static_cast<std::size_t>(rank)].host_key != here) continue;
    if (rank == options.rank) world_info.hosts.local_rank = world_info.hosts.local_size;
    ++world_info.hosts.local_size;
  }
  if (!options.make_transport) PC_TRY(check_reachable(world_info));
  return world_info;
}

}  // namespace

namespace {

// Called when rank 0 starts again after a failed attempt. Erases what that attempt published, and
// the errors that report_taken_rank() has published for the missing ranks.
void forget_failure(Store& store, const Keys& keys, Rank size) {
  const Deadline soon = Deadline::after(kNamingS);
  (void)store.erase(keys.list(), soon);
  (void)store.erase_all(keys.memory(), soon);
  for (const Rank missing : missing_ranks(store, keys, size, soon))
    (void)store.erase(keys.member(missing), soon);
}

// Called when rank 0 gives up. Its store may end with its process, so rank 0 waits until the ranks
// that arrived have read the reason and released their claims.
void await_the_others(Store& store, const Keys& keys, Rank size) {
  const Deadline soon = Deadline::after(kNamingS);
  for (Rank rank = 1; rank < size; ++rank) {
    for (;;) {
      const Result<int64_t> claims = store.add(keys.claim(rank), 0, soon);
      if (!claims.is_ok() || soon.expired()) return;
      if (claims.value() == 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// The part of rendezvous() that follows the claim.
Result<WorldInfo> rendezvous_as(Store& store, const Keys& keys, const RuntimeOptions& options,
                                const Member& us, Deadline wait_limit, Deadline deadline) {
  PC_TRY(store.set(keys.member(options.rank), encode_member(us), wait_limit));
  if (options.rank == 0) {
    const Result<std::string> list = gather(store, keys, options, wait_limit);
    if (!list.is_ok()) {
      const Status why = explain_wait(store, keys, options, list.status(), deadline);
      // Publishes the reason, so that the other ranks need not wait until their own deadlines. If
      // it cannot be published, they wait until then.
      (void)store.set(keys.list(), publish(why), Deadline::after(kNamingS));
      await_the_others(store, keys, options.size);
      return why;
    }
    PC_TRY(store.set(keys.list(), list.value(), deadline));
    Result<WorldInfo> world_info = read_list(list.value(), options);
    if (!world_info.is_ok()) await_the_others(store, keys, options.size);
    return world_info;
  }
  bool warned = false;
  const Result<std::string> list = await_key(store, keys, options, keys.list(), wait_limit, warned);
  if (!list.is_ok()) return explain_wait(store, keys, options, list.status(), deadline);
  return read_list(list.value(), options);
}

}  // namespace

Result<WorldInfo> rendezvous(Store& store, const RuntimeOptions& options, const std::string& address,
                             const std::string& endpoint, Deadline deadline) {
  const Keys keys(options);
  const double kept_back = std::min(kNamingS, deadline.remaining_s() / 4);
  const Deadline wait_limit = Deadline::after(deadline.remaining_s() - kept_back);
  PC_ASSIGN_OR_RETURN(HostMap::Entry here, this_process());
  here.joins_gpus = options.joins_gpus;
  PC_ASSIGN_OR_RETURN(const int64_t claims, store.add(keys.claim(options.rank), 1, wait_limit));
  if (claims != 1) {
    (void)store.add(keys.claim(options.rank), -1, Deadline::after(kNamingS));
    return report_taken_rank(store, keys, options, here);
  }
  PC_ASSIGN_OR_RETURN(const int64_t times, store.add(keys.came(options.rank), 1, wait_limit));
  if (times > 1 && options.rank == 0) forget_failure(store, keys, options.size);
  Result<WorldInfo> world_info =
      rendezvous_as(store, keys, options, Member{options.size, address, endpoint, here, options.tcp_sockets},
                    wait_limit, deadline);
  if (!world_info.is_ok()) release_rank(store, options);
  return world_info;
}

void release_rank(Store& store, const RuntimeOptions& options) {
  (void)store.add(Keys(options).claim(options.rank), -1, Deadline::after(kNamingS));
}

void leave_rendezvous(Store& store, const RuntimeOptions& options) {
  const Keys keys(options);
  const Deadline soon = Deadline::after(kNamingS);
  if (options.rank == 0) {
    (void)store.erase(keys.list(), soon);
    (void)store.erase_all(keys.memory(), soon);  // all ranks have read these keys, since they are connected
  }
  (void)store.erase(keys.member(options.rank), soon);
  (void)store.erase(keys.came(options.rank), soon);
  (void)store.erase(keys.claim(options.rank), soon);
}

}  // namespace pc
