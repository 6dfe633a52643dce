#include "tuning/selection.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/byte_units.h"
#include "base/fields.h"
#include "base/size_text.h"

namespace pc {
namespace {

constexpr uint64_t kChunk = kMiB;
// a piece of this size is still in a cache when it is forwarded after its reduction
constexpr uint64_t kCached = 512 * kKiB;
constexpr uint64_t kSmallChunk = 256 * kKiB;
constexpr uint32_t kMaxSplit = 4096;  // bounds a plan's length

std::string algorithm_names(Collective collective) {
  std::string names;
  for (const Algorithm& a : algorithms()) {
    if (a.collective == collective) names += (names.empty() ? "" : ", ") + std::string(a.name);
  }
  return names;
}

Status bad_row(std::string_view row, const std::string& why) {
  return Status(Code::kInvalidArgument,
                "selection '" + std::string(row) + "': " + why +
                    ". A row is collective:from-to:algorithm, for example "
                    "allreduce:0-64k:recursive_doubling, then :chunk=1m, :ranks=3 or :hosts=2 if wanted");
}

}  // namespace

SelectionTable SelectionTable::defaults() {
  const auto row = [](Collective collective, uint64_t from, uint64_t to, std::string_view name,
                      uint64_t chunk, GroupShape from_group) {
    return Row{collective, from, to, find_algorithm(collective, name), chunk, from_group};
  };
  SelectionTable table;
  table.rows_ = {
      row(Collective::kAllreduce, 32 * kKiB, kInfinity, "ring", kSmallChunk, {2, 2}),
      row(Collective::kAllreduce, 0, 16 * kKiB, "recursive_doubling", 0, {3, 1}),
      row(Collective::kAllreduce, 16 * kKiB, 16 * kMiB, "ring", 0, {3, 1}),
      row(Collective::kAllreduce, 16 * kMiB, kInfinity, "ring", kCached, {3, 1}),
      row(Collective::kAllreduce, 0, 32 * kKiB, "recursive_doubling", 0, {1, 1}),
      row(Collective::kAllreduce, 32 * kKiB, 4 * kMiB, "ring", 0, {1, 1}),
      row(Collective::kAllreduce, 4 * kMiB, kInfinity, "ring", kCached, {1, 1}),
      // used if a fixed order is required
      row(Collective::kAllreduce, 0, kInfinity, "rabenseifner", 0, {1, 1}),
      row(Collective::kBroadcast, 0, kInfinity, "binomial", kChunk, {3, 1}),
      // two ranks forward nothing, so the array is not cut
      row(Collective::kBroadcast, 0, kInfinity, "binomial", 0, {1, 1}),
      row(Collective::kReduce, 0, kInfinity, "binomial", kChunk, {3, 1}),
      row(Collective::kReduce, 0, kInfinity, "binomial", 0, {1, 1}),
      row(Collective::kBarrier, 0, kInfinity, "dissemination", 0, {1, 1}),
      row(Collective::kAllgather, 32 * kKiB, kInfinity, "ring", kSmallChunk, {2, 2}),
      row(Collective::kAllgather, 0, 32 * kKiB, "bruck", 0, {3, 1}),
      row(Collective::kAllgather, 0, kInfinity, "ring", 0, {1, 1}),
      row(Collective::kReduceScatter, kMiB, kInfinity, "ring", kSmallChunk, {3, 2}),
      row(Collective::kReduceScatter, 0, kInfinity, "pairwise", 0, {1, 1}),
      // used if a fixed order is required
      row(Collective::kReduceScatter, 0, kInfinity, "pairwise_tree", 0, {1, 1}),
      row(Collective::kAlltoall, 0, 32 * kKiB, "bruck", 0, {9, 1}),
      row(Collective::kAlltoall, 0, kInfinity, "pairwise", 0, {1, 1}),
      row(Collective::kGather, 0, 32 * kKiB, "binomial", 0, {9, 1}),
      row(Collective::kGather, 0, kInfinity, "linear", 0, {1, 1}),
      row(Collective::kScatter, 0, 32 * kKiB, "binomial", 0, {9, 1}),
      row(Collective::kScatter, 0, kInfinity, "linear", 0, {1, 1}),
      row(Collective::kScan, 64 * kKiB, kInfinity, "chain", kSmallChunk, {1, 1}),
      row(Collective::kScan, 0, kInfinity, "recursive_doubling", 0, {1, 1}),
      row(Collective::kExscan, 64 * kKiB, kInfinity, "chain", kSmallChunk, {1, 1}),
      row(Collective::kExscan, 0, kInfinity, "recursive_doubling", 0, {1, 1}),
  };
  return table;
}

Result<SelectionTable> SelectionTable::parse(std::string_view text) {
  SelectionTable table;
  for (const std::string_view part : cut(text, ';')) {
    if (part.empty()) continue;
    PC_ASSIGN_OR_RETURN(const Row row, parse_row(part));
    table.rows_.push_back(row);
  }
  // The text of a whole table already ends with the defaults. They are not added twice, so that
  // to_string() returns the same text.
  const std::vector<Row> rest = defaults().rows_;
  const bool whole =
      table.rows_.size() >= rest.size() && std::equal(rest.rbegin(), rest.rend(), table.rows_.rbegin());
  if (!whole) table.rows_.insert(table.rows_.end(), rest.begin(), rest.end());
  return table;
}

Result<SelectionTable::Row> SelectionTable::parse_row(std::string_view text) {
  const std::vector<std::string_view> fields = cut(text, ':');
  if (fields.size() < 3) return bad_row(text, "too few fields");
  const std::optional<Collective> collective = collective_from_name(fields[0]);
  if (!collective) return bad_row(text, "no collective is called '" + std::string(fields[0]) + "'");
  const std::size_t dash = fields[1].find('-');
  if (dash == std::string_view::npos) return bad_row(text, "'" + std::string(fields[1]) + "' is no range");
  const std::optional<uint64_t> from = size_from(fields[1].substr(0, dash));
  const std::optional<uint64_t> to = size_from(fields[1].substr(dash + 1));
  if (!from || !to || *from >= *to)
    return bad_row(text, "'" + std::string(fields[1]) + "' is no range of sizes");
  const Algorithm* const algorithm = find_algorithm(*collective, fields[2]);
  if (algorithm == nullptr) {
    return bad_row(
        text, "there is no '" + std::string(fields[2]) + "' for it, but " + algorithm_names(*collective));
  }
  Row row{*collective, *from, *to, algorithm, usual_chunk_nbytes(*algorithm)};
  for (std::size_t i = 3; i < fields.size(); ++i) {
    const std::size_t equals = std::min(fields[i].find('='), fields[i].size() - 1);
    const std::string_view name = fields[i].substr(0, equals);
    const std::optional<uint64_t> value = size_from(fields[i].substr(equals + 1));
    if (!value) return bad_row(text, "'" + std::string(fields[i]) + "' has no number");
    if (name == "chunk" && algorithm->pipelines != Pipelines::kNot) {
      row.chunk_nbytes = *value;
    } else if (*value >= 1 && std::in_range<Rank>(*value) && (name == "ranks" || name == "hosts")) {
      (name == "ranks" ? row.from.size : row.from.hosts) = static_cast<Rank>(*value);
    } else {
      return bad_row(text, "'" + std::string(fields[i]) + "' means nothing here");
    }
  }
  return row;
}

Result<SelectionTable> SelectionTable::with_measured(std::string_view text) const {
  SelectionTable table = *this;
  // every table ends with the default rows
  table.measured_from_ = table.measured_to_ = rows_.size() - defaults().rows_.size();
  for (const std::string_view part : cut(text, ';')) {
    if (part.empty()) continue;
    PC_ASSIGN_OR_RETURN(const Row row, parse_row(part));
    table.rows_.insert(table.rows_.begin() + static_cast<std::ptrdiff_t>(table.measured_to_++), row);
  }
  return table;
}

std::string SelectionTable::to_string() const {
  std::string text;
  for (std::size_t row = 0; row < rows_.size(); ++row) text += (row == 0 ? "" : ";") + row_text(row);
  return text;
}

std::string SelectionTable::row_text(std::size_t at) const {
  const Row& row = rows_[at];
  std::string text = std::string(name_of(row.collective)) + ":" + size_text(row.from_nbytes) + "-" +
                     size_text(row.to_nbytes) + ":" + std::string(row.algorithm->name);
  if (row.algorithm->pipelines != Pipelines::kNot) text += ":chunk=" + size_text(row.chunk_nbytes);
  if (row.from.size != 1) text += ":ranks=" + std::to_string(row.from.size);
  if (row.from.hosts != 1) text += ":hosts=" + std::to_string(row.from.hosts);
  return text;
}

uint64_t usual_chunk_nbytes(const Algorithm& algorithm) {
  return algorithm.pipelines == Pipelines::kArray ? kChunk : 0;
}

uint32_t split_for(const Algorithm& algorithm, uint64_t chunk_nbytes, uint64_t nbytes, Rank size) {
  // chunk_nbytes applies to the array, or to each rank's part of it.
  const bool cuts_parts = algorithm.pipelines == Pipelines::kParts;
  const uint64_t part = chunk_nbytes * static_cast<uint64_t>(cuts_parts ? size : 1);
  if (part == 0 || nbytes <= part || nbytes == kUnknownSize) return 1;
  return static_cast<uint32_t>(std::min<uint64_t>((nbytes - 1) / part + 1, kMaxSplit));
}

Choice SelectionTable::choose(Collective collective, const Call& call, const GroupShape& group) const {
  const uint64_t nbytes = call.nbytes;
  for (const Row& row : rows_) {
    if (row.collective != collective || nbytes < row.from_nbytes) continue;
    if (group.size < row.from.size || group.hosts < row.from.hosts) continue;
    if (nbytes >= row.to_nbytes && row.to_nbytes != kInfinity) continue;
    if (call.fixed_order && !row.algorithm->fixed_order) continue;
    const Choice choice{row.algorithm, split_for(*row.algorithm, row.chunk_nbytes, nbytes, group.size),
                        static_cast<std::size_t>(&row - rows_.data())};
    if (choice.algorithm->supports(Shape{collective, 0, group.size, 0, choice.split, call.even}))
      return choice;
  }
  return {};  // unreachable: every table ends with the default rows
}

}  // namespace pc
