#include "bootstrap/shm_domains.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "bootstrap/store_keys.h"

namespace pc {
namespace {

// How long the leader waits for the descriptors of a rank that has published kHere. A rank sends
// them before it publishes kHere, so they are already queued at the listener.
constexpr double kArrivalS = 3;
// how long before the deadline waiting ends, to report a missing rank to the other ranks
constexpr double kKeptBackS = 0.5;
// how long rank 0 keeps its store for the other ranks when all ranks refuse to start
constexpr double kStoreGraceS = 1;
constexpr std::string_view kHere = "here", kNo = "no: ";

struct Place {  // domain of one rank, determined by its host's leader
  Rank domain = -1;
  std::string why_alone;
};
using Places = std::map<Rank, Place>;

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, ' ');
  return text;
}

std::string encode_places(const Places& places) {
  std::string text;
  for (const auto& [rank, place] : places) {
    text += (text.empty() ? "" : std::string(1, kLine)) + std::to_string(rank) + kField +
            std::to_string(place.domain) + kField + one_line(place.why_alone);
  }
  return text;
}

Result<Places> decode_places(std::string_view text, Rank size) {
  PC_TRY(published_error(text));
  Places places;
  for (const std::string_view line : cut(text, kLine)) {
    const std::vector<std::string_view> fields = cut(line, kField);
    Rank rank = -1, domain = -1;
    const bool right = fields.size() == 3 && number_from(fields[0], rank) && number_from(fields[1], domain) &&
                       rank >= 0 && rank < size && domain >= 0 && domain <= rank;
    if (!right) return Status(Code::kMismatch, "a rank published something unreadable about shared memory");
    places[rank] = {domain, std::string(fields[2])};
  }
  return places;
}

// Groups the ranks by host. The first rank of each host is its leader.
std::vector<std::vector<Rank>> hosts_of(const HostMap& map) {
  std::map<std::string_view, std::vector<Rank>> by_key;
  for (std::size_t i = 0; i < map.ranks.size(); ++i)
    by_key[map.ranks[i].host_key].push_back(static_cast<Rank>(i));
  std::vector<std::vector<Rank>> hosts;
  for (auto& [key, ranks] : by_key) hosts.push_back(std::move(ranks));
  return hosts;
}

Deadline some_before(Deadline deadline) {
  const double left = deadline.remaining_s();
  return Deadline::after(left - std::min(kKeptBackS, left / 4));
}

bool ended_init(const Status& status) {
  return status.code() == Code::kTimeout || status.code() == Code::kInterrupted ||
         status.code() == Code::kAborted;
}

// This rank's descriptors, and those that it has received from other ranks. They are used only once
// it is known which ranks have received all descriptors.
struct Candidate {
  Result<SharedPart> own = Status(Code::kInternal, "this rank is alone on its host");
  std::vector<PeerPart> peers;
};

// The exchange of descriptors among the ranks of this host.
class FdExchange {
 public:
  FdExchange(Store& store, const RuntimeOptions& options, const WorldInfo& world_info,
             std::vector<Rank> ranks, const WaitContext& context)
      : store_(store),
        keys_(options),
        options_(options),
        world_info_(world_info),
        ranks_(std::move(ranks)),
        context_(context) {}
  Status lead(const Result<FdExchangeListener>& listener, Candidate& candidate);
  Status come(Candidate& candidate);

 private:
  Rank leader() const { return ranks_.front(); }
  Status await_words(FdExchangeServer& server, const WaitContext& wait_limit, Places& places);
  Result<std::string> word_of(Rank rank, FdExchangeServer& server, const WaitContext& wait_limit);
  Status await_arrival(Rank rank, FdExchangeServer& server);
  Result<Places> gather(const Result<FdExchangeListener>& listener, Candidate& candidate);
  Result<FdExchangeClient> connect_client(const Candidate& candidate) const;
  std::set<Rank> others() const {
    std::set<Rank> set(ranks_.begin(), ranks_.end());
    set.erase(options_.rank);
    return set;
  }

  Store& store_;
  const Keys keys_;
  const RuntimeOptions& options_;
  const WorldInfo& world_info_;
  const std::vector<Rank> ranks_;
  const WaitContext context_;
};

Status FdExchange::lead(const Result<FdExchangeListener>& listener, Candidate& candidate) {
  const Result<Places> places = gather(listener, candidate);
  const std::string text = places.is_ok() ? encode_places(places.value()) : publish(places.status());
  const Status published = store_.set(keys_.domain_of(world_info_.world, leader()), text, context_.deadline);
  return places.is_ok() ? published : places.status();
}

Result<Places> FdExchange::gather(const Result<FdExchangeListener>& listener, Candidate& candidate) {
  Places places;
  const Status able = listener.is_ok() ? candidate.own.status() : listener.status();
  if (!able.is_ok()) {
    const std::string why =
        "rank " + std::to_string(leader()) + ", which leads on its host, cannot share memory: ";
    for (const Rank rank : ranks_) places[rank] = {rank, why + able.message()};
    return places;
  }
  WaitContext wait_limit = context_;
  wait_limit.deadline = some_before(context_.deadline);
  FdExchangeServer server(listener.value(), options_.epoch, others());
  PC_TRY(await_words(server, wait_limit, places));
  PC_ASSIGN_OR_RETURN(const auto failed, server.distribute(options_.rank, candidate.own.value(), wait_limit));
  for (const auto& [rank, why] : failed) places[rank] = {rank, why};
  candidate.peers = server.take_peers();
  for (const PeerPart& peer : candidate.peers) places[peer.rank] = {leader(), ""};
  const std::string why = candidate.peers.empty() ? "no other rank of its host can share memory" : "";
  places[leader()] = {leader(), why};
  return places;
}

// Waits for the report of every other local rank. Afterwards the server has the descriptors of
// every rank that can share memory, and `places` has the reason for every rank that cannot.
Status FdExchange::await_words(FdExchangeServer& server, const WaitContext& wait_limit, Places& places) {
  for (const Rank rank : others()) {
    PC_ASSIGN_OR_RETURN(const std::string word, word_of(rank, server, wait_limit));
    if (word == kHere) PC_TRY(await_arrival(rank, server));
    if (server.has(rank)) continue;
    const std::string refusal = server.refusal_of(rank);
    places[rank] = {rank, word.starts_with(kNo) ? word.substr(kNo.size())
                          : !refusal.empty()
                              ? refusal
                              : "its descriptors did not arrive at rank " + std::to_string(leader()) +
                                    " (ulimit -n is the limit of both)"};
  }
  return Status::ok();
}

// Returns the report that `rank` publishes in the store. While waiting, serves the listener,
// because the other ranks connect to it.
Result<std::string> FdExchange::word_of(Rank rank, FdExchangeServer& server, const WaitContext& wait_limit) {
  for (;;) {
    PC_TRY(server.serve(0));
    Result<std::string> word =
        store_.get(keys_.memory_of(world_info_.world, rank), Deadline::after(Deadline::kSliceMs * 1e-3));
    if (word.is_ok() || word.status().code() != Code::kTimeout) return word;
    const WaitEnd end = Waiter::check(wait_limit);
    if (end == WaitEnd::kReady) continue;
    if (end == WaitEnd::kInterrupted)
      return Status(Code::kInterrupted, "interrupted while the ranks of this host gathered");
    if (end == WaitEnd::kAborted) return Status(Code::kAborted, "ended by another thread");
    return Status(Code::kTimeout, "rank " + std::to_string(rank) +
                                      " completed the rendezvous, and then did not report whether it shares "
                                      "memory: look at its output")
        .with_peer(rank);
  }
}

Status FdExchange::await_arrival(Rank rank, FdExchangeServer& server) {
  const Deadline arrival = Deadline::after(kArrivalS);
  while (!server.has(rank) && server.refusal_of(rank).empty() && !arrival.expired())
    PC_TRY(server.serve(arrival.slice_ms()));
  return Status::ok();
}

Status FdExchange::come(Candidate& candidate) {
  Result<FdExchangeClient> client = connect_client(candidate);
  if (!client.is_ok() && ended_init(client.status())) return client.status();
  const std::string word =
      client.is_ok() ? std::string(kHere) : std::string(kNo) + one_line(client.status().message());
  PC_TRY(store_.set(keys_.memory_of(world_info_.world, options_.rank), word, context_.deadline));
  if (!client.is_ok()) return Status::ok();
  Result<std::vector<PeerPart>> peers = client.value().receive(others(), context_);
  if (!peers.is_ok())
    // other errors have been reported to the leader
    return ended_init(peers.status()) ? peers.status() : Status::ok();
  candidate.peers = std::move(peers).value();
  return Status::ok();
}

Result<FdExchangeClient> FdExchange::connect_client(const Candidate& candidate) const {
  PC_TRY(candidate.own.status());
  const std::string& text = world_info_.endpoints[static_cast<std::size_t>(leader())];
  if (text.empty())
    return Status(Code::kSystem,
                  "rank " + std::to_string(leader()) + ", which leads on its host, has no socket for it");
  PC_ASSIGN_OR_RETURN(const FdEndpoint endpoint, endpoint_from(text));
  return FdExchangeClient::begin(endpoint, options_.rank, options_.epoch, candidate.own.value(), context_);
}

// Called on rank 0. Returns the results of all leaders.
Result<std::string> collect(Store& store, const Keys& keys, const RuntimeOptions& options,
                            const WorldInfo& world_info, const std::vector<std::vector<Rank>>& hosts,
                            Deadline deadline) {
  Places all;
  for (const std::vector<Rank>& ranks : hosts) {
    if (ranks.size() == 1) continue;
    PC_ASSIGN_OR_RETURN(const std::string text,
                        store.get(keys.domain_of(world_info.world, ranks.front()), deadline));
    PC_ASSIGN_OR_RETURN(const Places places, decode_places(text, options.size));
    all.insert(places.begin(), places.end());
  }
  return encode_places(all);
}

// Rank 0 publishes the results of all hosts. Every rank returns them. `exchanged` is the outcome of
// the exchange on this rank's host.
Result<Places> await_domains(Store& store, const RuntimeOptions& options, const WorldInfo& world_info,
                             const std::vector<std::vector<Rank>>& hosts, const Status& exchanged,
                             Deadline deadline) {
  const Keys keys(options);
  if (options.rank == 0) {
    const Deadline wait_limit = Deadline::after(deadline.remaining_s() - kKeptBackS / 2);
    const Result<std::string> all =
        exchanged.is_ok() ? collect(store, keys, options, world_info, hosts, wait_limit) : exchanged;
    const std::string text = all.is_ok() ? all.value() : publish(all.status());
    const Status published = store.set(keys.domains(world_info.world), text, deadline);
    PC_TRY(all.status());
    PC_TRY(published);
  }
  PC_TRY(exchanged);
  PC_ASSIGN_OR_RETURN(const std::string text, store.get(keys.domains(world_info.world), deadline));
  return decode_places(text, options.size);
}

void all_alone(HostMap& map, const std::string& why) {
  for (HostMap::Entry& entry : map.ranks) entry.why_alone = why;
}

Status check_asked_for(const WorldInfo& world_info, const std::vector<std::vector<Rank>>& hosts) {
  if (world_info.transport != "shm") return Status::ok();
  constexpr const char* kMend =
      ". With \"auto\" instead of \"shm\" the ranks that can share memory do, and the others use TCP";
  if (hosts.size() > 1) {
    return Status(Code::kUnsupported, "the transport \"shm\" was asked for, and these ranks are on " +
                                          std::to_string(hosts.size()) + " hosts" + kMend);
  }
  std::string reasons;
  for (std::size_t i = 0; i < world_info.hosts.ranks.size(); ++i) {
    const HostMap::Entry& entry = world_info.hosts.ranks[i];
    if (entry.domain != 0 || !entry.why_alone.empty())
      reasons += (reasons.empty() ? "" : "; ") + ("rank " + std::to_string(i) + ": ") + entry.why_alone;
  }
  if (reasons.empty()) return Status::ok();
  return Status(Code::kUnsupported,
                "the transport \"shm\" was asked for, and not all ranks share memory: " + reasons + kMend);
}

// Returns `why`, which all ranks derive independently from the same data. If it is an error, rank 0
// first waits until the other ranks have derived it too, because its store may end with its
// process.
Status refuse_together(Store& store, const RuntimeOptions& options, const WorldInfo& world_info, Status why) {
  if (why.is_ok()) return why;
  const Keys keys(options);
  const Deadline store_grace = Deadline::after(kStoreGraceS);
  if (options.rank != 0) (void)store.set(keys.refused(world_info.world, options.rank), "", store_grace);
  for (Rank rank = 1; options.rank == 0 && rank < options.size; ++rank)
    (void)store.wait(keys.refused(world_info.world, rank), store_grace);
  return why;
}

std::unique_ptr<LocalPeers> local_peers_of(const RuntimeOptions& options, const HostMap& map,
                                           Candidate candidate) {
  const auto domain = [&](Rank rank) { return map.ranks[static_cast<std::size_t>(rank)].domain; };
  std::erase_if(candidate.peers,
                [&](const PeerPart& peer) { return domain(peer.rank) != domain(options.rank); });
  if (candidate.peers.empty() || !candidate.own.is_ok() ||
      !map.ranks[static_cast<std::size_t>(options.rank)].why_alone.empty())
    return nullptr;
  return make_process_local_peers(options.rank, std::move(candidate.own).value(), std::move(candidate.peers));
}

// For tests: options.make_local_peers defines which ranks share memory.
std::unique_ptr<LocalPeers> made_local_peers(const RuntimeOptions& options, HostMap& map) {
  std::unique_ptr<LocalPeers> ours;
  for (Rank rank = 0; rank < options.size; ++rank) {
    std::unique_ptr<LocalPeers> made = options.make_local_peers(rank);
    Rank first = 0, others = 0;
    while (!made->has(first)) ++first;
    for (Rank other = 0; other < options.size; ++other) others += made->has(other) && other != rank ? 1 : 0;
    HostMap::Entry& entry = map.ranks[static_cast<std::size_t>(rank)];
    entry.domain = first;
    if (others == 0) entry.why_alone = "no other rank shares its memory";
    if (rank == options.rank && others != 0) ours = std::move(made);
  }
  return ours;
}

}  // namespace

Result<std::unique_ptr<LocalPeers>> find_local_peers(Store& store, const RuntimeOptions& options,
                                                     const Result<FdExchangeListener>& listener,
                                                     WorldInfo& world_info, const WaitContext& context) {
  HostMap& map = world_info.hosts;
  if (options.make_local_peers) {
    return made_local_peers(options, map);
  }
  if (options.make_transport || world_info.transport == "tcp") {
    all_alone(map, options.make_transport ? "the ranks are threads of one process"
                                          : "the transport that was asked for is tcp");
    return std::unique_ptr<LocalPeers>();
  }
  const std::vector<std::vector<Rank>> hosts = hosts_of(map);
  if (hosts.size() > 1)
    PC_TRY(refuse_together(store, options, world_info, check_asked_for(world_info, hosts)));
  all_alone(map, "no other rank is on its host");
  if (hosts.size() == map.ranks.size()) return std::unique_ptr<LocalPeers>();
  Candidate candidate;
  Status exchanged;
  for (const std::vector<Rank>& ranks : hosts) {
    if (ranks.size() == 1 || std::find(ranks.begin(), ranks.end(), options.rank) == ranks.end()) continue;
    candidate.own = SharedPart::create();
    FdExchange exchange(store, options, world_info, ranks, context);
    exchanged = ranks.front() == options.rank ? exchange.lead(listener, candidate) : exchange.come(candidate);
  }
  PC_ASSIGN_OR_RETURN(const Places places,
                      await_domains(store, options, world_info, hosts, exchanged, context.deadline));
  for (const auto& [rank, found] : places) {
    map.ranks[static_cast<std::size_t>(rank)].domain = found.domain;
    map.ranks[static_cast<std::size_t>(rank)].why_alone = found.why_alone;
  }
  PC_TRY(refuse_together(store, options, world_info, check_asked_for(world_info, hosts)));
  return local_peers_of(options, map, std::move(candidate));
}

}  // namespace pc
