#include "comm/bootstrap.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace pc {
namespace {

constexpr std::array<std::string_view, 3> kCheckNames = {"off", "on", "strict"};  // by Check
constexpr char kField = '\t', kLine = '\n';
constexpr double kNamingS = 0.5;  // kept back from the deadline to find out who is missing

struct Member {
  Rank size = 0;
  std::string address;
  HostMap::Entry entry;
};

std::vector<std::string> cut(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string encode(const Member& m) {
  return std::to_string(m.size) + kField + m.address + kField + m.entry.host_name + kField +
         m.entry.host_key + kField + std::to_string(m.entry.pid) + kField + m.entry.pid_key;
}

template <class T>
bool number_from(const std::string& text, T& number) {
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

Result<Member> decode_member(Rank rank, std::string_view text) {
  const std::vector<std::string> fields = cut(text, kField);
  Member m;
  if (fields.size() != 6 || !number_from(fields[0], m.size) || !number_from(fields[4], m.entry.pid)) {
    return Status(Code::kMismatch, "rank " + std::to_string(rank) +
                                       " published something unreadable; do all ranks run the same version?")
        .with_peer(rank);
  }
  m.address = fields[1];
  m.entry.host_name = fields[2];
  m.entry.host_key = fields[3];
  m.entry.pid_key = fields[5];
  return m;
}

// Keys of one job and one epoch, so that a store can serve several. They stand in messages: not the job's id itself.
class Keys {
 public:
  explicit Keys(const RuntimeOptions& options)
      : prefix_("pycollective/" + fingerprint(options.job) + "/" + std::to_string(options.epoch) + "/") {}
  std::string member(Rank rank) const { return prefix_ + "rank/" + std::to_string(rank); }
  std::string claim(Rank rank) const { return prefix_ + "claim/" + std::to_string(rank); }
  std::string list() const { return prefix_ + "members"; }

 private:
  std::string prefix_;
};

// "1, 2, 5 and 7 more": who has not published. Asks for little time only; who cannot be asked for counts as missing.
std::string missing_ranks(Store& store, const Keys& keys, Rank size, Deadline deadline, Rank& first) {
  constexpr int kNamed = 16;
  std::string names;
  int missing = 0;
  for (Rank rank = 0; rank < size && !deadline.expired(); ++rank) {
    const double share = std::max(deadline.remaining_s() / (size - rank), 0.002);
    if (store.get(keys.member(rank), Deadline::after(share)).is_ok()) continue;
    if (++missing == 1) first = rank;
    if (missing <= kNamed) names += (missing == 1 ? "" : ", ") + std::to_string(rank);
  }
  if (missing > kNamed) names += " and " + std::to_string(missing - kNamed) + " more";
  return names;
}

Status explain_wait(Store& store, const Keys& keys, const RuntimeOptions& options, const Status& failed,
                    Deadline deadline) {
  if (failed.code() != Code::kTimeout) return failed;
  // Our own key is there: if it does not come, it is the store that is missing, and not the ranks.
  const Deadline own = Deadline::after(std::max(deadline.remaining_s() / 2, 0.002));
  if (!store.get(keys.member(options.rank), own).is_ok()) return failed;
  const Rank size = options.size;
  Rank first = -1;
  const std::string names = missing_ranks(store, keys, size, deadline, first);
  if (first < 0) return failed;
  return Status(Code::kTimeout,
                "of " + std::to_string(size) + " ranks these never came: " + names +
                    ". Look whether they were started with the same address and size, and at their output")
      .with_peer(first);
}

Result<std::string> gather(Store& store, const Keys& keys, const RuntimeOptions& options, Deadline deadline) {
  PC_ASSIGN_OR_RETURN(const SelectionTable table, SelectionTable::parse(options.tune));
  std::string list =
      "ok " + std::string(kCheckNames[static_cast<std::size_t>(options.check)]) + " " + table.to_string();
  for (Rank rank = 0; rank < options.size; ++rank) {
    PC_ASSIGN_OR_RETURN(const std::string text, store.get(keys.member(rank), deadline));
    PC_ASSIGN_OR_RETURN(const Member member, decode_member(rank, text));
    if (member.size != options.size) {
      return Status(Code::kMismatch, "rank " + std::to_string(rank) + " was started for " +
                                         std::to_string(member.size) + " ranks and rank 0 for " +
                                         std::to_string(options.size) + ": give all the same size")
          .with_peer(rank);
    }
    list += kLine + text;
  }
  return list;
}

Result<Meeting> read_list(const std::string& list, const RuntimeOptions& options) {
  if (list.rfind("error ", 0) == 0)
    return Status(Code::kAborted, "rank 0 could not start: " + list.substr(6)).with_peer(0);
  const std::vector<std::string> lines = cut(list, kLine);
  if (lines[0].rfind("ok ", 0) != 0)
    return Status(Code::kMismatch, "rank 0 published something unreadable").with_peer(0);
  if (lines.size() != static_cast<std::size_t>(options.size) + 1) {
    return Status(Code::kMismatch, "rank 0 was started for " + std::to_string(lines.size() - 1) +
                                       " ranks and this one for " + std::to_string(options.size) +
                                       ": give all the same size")
        .with_peer(0);
  }
  Meeting meeting;
  const std::vector<std::string> words = cut(lines[0], ' ');
  const auto check =
      words.size() < 2 ? kCheckNames.end() : std::find(kCheckNames.begin(), kCheckNames.end(), words[1]);
  if (check == kCheckNames.end())
    return Status(Code::kMismatch, "rank 0 published something unreadable").with_peer(0);
  meeting.check = static_cast<Check>(check - kCheckNames.begin());
  const std::size_t table_at = words[0].size() + words[1].size() + 2;
  PC_ASSIGN_OR_RETURN(
      meeting.selection,
      SelectionTable::parse(std::string_view(lines[0]).substr(std::min(table_at, lines[0].size()))));
  for (Rank rank = 0; rank < options.size; ++rank) {
    PC_ASSIGN_OR_RETURN(Member member, decode_member(rank, lines[static_cast<std::size_t>(rank) + 1]));
    meeting.addresses.push_back(std::move(member.address));
    meeting.hosts.ranks.push_back(std::move(member.entry));
  }
  const std::string& here = meeting.hosts.ranks[static_cast<std::size_t>(options.rank)].host_key;
  meeting.hosts.local_size = 0;
  for (Rank rank = 0; rank < options.size; ++rank) {
    if (meeting.hosts.ranks[static_cast<std::size_t>(rank)].host_key != here) continue;
    if (rank == options.rank) meeting.hosts.local_rank = meeting.hosts.local_size;
    ++meeting.hosts.local_size;
  }
  return meeting;
}

}  // namespace

Result<Meeting> meet(Store& store, const RuntimeOptions& options, const std::string& address,
                     Deadline deadline) {
  const Keys keys(options);
  const double kept_back = std::min(kNamingS, deadline.remaining_s() / 4);
  const Deadline patience = Deadline::after(deadline.remaining_s() - kept_back);
  PC_ASSIGN_OR_RETURN(const int64_t claims, store.add(keys.claim(options.rank), 1, patience));
  if (claims != 1) {
    return Status(
        Code::kMismatch,
        "rank " + std::to_string(options.rank) +
            " is taken: two processes were given the same rank, or the store still holds an "
            "earlier run of this job; give every process its own rank, every run its own store or epoch");
  }
  PC_TRY(
      store.set(keys.member(options.rank), encode(Member{options.size, address, this_process()}), patience));
  if (options.rank == 0) {
    const Result<std::string> list = gather(store, keys, options, patience);
    if (!list.is_ok()) {
      const Status why = explain_wait(store, keys, options, list.status(), deadline);
      // So that the others need not wait for their own deadlines. If this fails too, they have them.
      (void)store.set(keys.list(), "error " + why.to_string(), Deadline::after(kNamingS));
      return why;
    }
    PC_TRY(store.set(keys.list(), list.value(), deadline));
    return read_list(list.value(), options);
  }
  const Result<std::string> list = store.get(keys.list(), patience);
  if (!list.is_ok()) return explain_wait(store, keys, options, list.status(), deadline);
  return read_list(list.value(), options);
}

}  // namespace pc
