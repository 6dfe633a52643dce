#include "bench/rank.h"

#include <memory>
#include <optional>

#include "bench/join.h"
#include "bench/output.h"
#include "bench/seat.h"

namespace pc::bench {
Status run_rank(const Options& options, const Place& place) {
  PC_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, join(options, place));
  PC_ASSIGN_OR_RETURN(const Seat seat, take_seat(*runtime, options.group));
  const bool one_clock = runtime->hosts().local_size == place.size;
  Output output(options, seat.prints);
  if (seat.group != nullptr) output.open(runtime->hosts(), {*seat.group, one_clock});
  for (const Case& what : options.cases) {
    PC_TRY(output.begin(what));
    const std::size_t rows = what.operation->moves_data ? options.sizes.size() : 1;
    for (std::size_t i = 0; i < rows; ++i) {
      const uint64_t nbytes = what.operation->moves_data ? options.sizes[i] : 0;
      std::optional<Row> row;
      if (seat.group != nullptr) {
        PC_ASSIGN_OR_RETURN(row, measure({*seat.group, one_clock}, what, nbytes, effort(options, nbytes)));
      }
      if (!options.group.empty()) PC_TRY(meet(runtime->world(), seat, row));
      if (row) PC_TRY(output.add(*row));
    }
  }
  PC_TRY(output.close());
  PC_TRY(runtime->shutdown(Deadline::after(runtime->world().timeout_s())));
  if (output.wrong() == 0 || !seat.prints) return Status::ok();
  return Status(Code::kInternal, std::to_string(output.wrong()) + " elements of the results are wrong");
}

}  // namespace pc::bench
