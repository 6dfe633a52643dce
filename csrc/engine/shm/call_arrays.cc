#include "engine/shm/call_arrays.h"

#include <algorithm>

#include "kernels/copy.h"
#include "kernels/reduce.h"

namespace pc::shm {
namespace {

constexpr std::size_t kNear = 8192;  // bytes; fits into the nearest cache

}  // namespace

void CallArrays::bind(const Request& request, std::size_t past_caches_from) {
  in_ = {const_cast<std::byte*>(request.in.data), request.in.list};  // never written
  out_ = {request.out.data, request.out.list};
  dtype_ = request.in.dtype;
  op_ = request.op;
  out_is_large_ = request.out.nbytes() >= past_caches_from;
}

void CallArrays::put(std::byte* to, std::size_t in_begin, std::size_t nbytes, SharedCopy& copy) const {
  for (std::size_t done = 0; done < nbytes;) {
    const std::span<std::byte> piece = in_.at(in_begin + done, nbytes - done);
    copy(to + done, piece.data(), piece.size());
    done += piece.size();
  }
}

void CallArrays::take(const std::byte* from, std::size_t out_begin, std::size_t nbytes) const {
  for (std::size_t done = 0; done < nbytes;) {
    const std::span<std::byte> piece = out_.at(out_begin + done, nbytes - done);
    copy_out(piece.data(), from + done, piece.size());
    done += piece.size();
  }
}

std::size_t CallArrays::keep(std::size_t in_begin, std::size_t out_begin, std::size_t nbytes) const {
  const std::span<std::byte> target = out_.at(out_begin, nbytes);
  const std::span<std::byte> source = in_.at(in_begin, target.size());
  if (source.data() != target.data()) copy_out(target.data(), source.data(), source.size());
  return source.size();
}

// A large output, which fits into no cache, is stored past the caches. Then its lines need not be
// read before they are written.
void CallArrays::copy_out(std::byte* to, const std::byte* from, std::size_t nbytes) const {
  out_is_large_ ? copy_past_caches(to, from, nbytes) : pc::copy(to, from, nbytes);
}

void CallArrays::combine(std::span<const std::byte*> sources, std::size_t in_begin, std::size_t out_begin,
                         std::size_t nbytes, std::byte* also, Stores also_by) const {
  const auto own = std::find(sources.begin(), sources.end(), nullptr);
  for (std::size_t done = 0; done < nbytes;) {
    std::size_t count = nbytes - done;
    std::byte* out = nullptr;
    if (has_output() && out_begin != kNowhere) {
      const std::span<std::byte> place = out_.at(out_begin + done, count);
      out = place.data();
      count = place.size();
    }
    if (own != sources.end()) {
      const std::span<std::byte> place = in_.at(in_begin + done, count);
      *own = place.data();
      count = place.size();
    }
    if (also != nullptr && also_by == Stores::kPastCaches) {
      alignas(64) std::byte near[kNear];
      count = std::min(count, kNear);
      if (out == nullptr) out = near;
      reduce_all(out, nullptr, sources, count / size_of(dtype_), dtype_, op_);
      copy_past_caches(also + done, out, count);
    } else {
      reduce_all(out, also == nullptr ? nullptr : also + done, sources, count / size_of(dtype_), dtype_, op_);
    }
    for (const std::byte*& source : sources) source += count;
    done += count;
  }
}

}  // namespace pc::shm
