// One NCCL library, opened. It stays in the process for good: a framework may have it too, and it has threads of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "gpu/nccl/api.h"
#include "gpu/nccl/search.h"

namespace pc::nccl {

// A candidate that was not taken.
struct Attempt {
  std::string how, path, why;
};

// Thread-safety: immutable once it is open.
class Library {
 public:
  // The first candidate that opens and can be used. kUnsupported: there is none; the message says what was looked at, and
  // what would help.
  static Result<Library> open(const SearchEnvironment& around);

  const Api& api() const { return *api_; }
  // For whoever outlives this object: the library itself is never closed.
  std::shared_ptr<const Api> shared_api() const { return api_; }
  const std::string& how() const { return how_; }
  const std::string& path() const { return path_; }  // of the file, as the loader knows it
  const std::vector<Attempt>& tried() const { return tried_; }
  // "NCCL 2.28.9 from /.../libnccl.so.2 (already loaded)": for logs and build information.
  std::string to_string() const;

 private:
  Library(std::shared_ptr<const Api> api, std::string how, std::string path, std::vector<Attempt> tried)
      : api_(std::move(api)),
        how_(std::move(how)),
        path_(std::move(path)),
        tried_(std::move(tried)) {}

  std::shared_ptr<const Api> api_;
  std::string how_, path_;
  std::vector<Attempt> tried_;
};

// The files named libnccl.so* that are mapped in this process now. Two of them have nothing to do with each other: they fill
// the same GPU's memory twice, and an order of calls across them is nobody's business. One that is linked into a framework
// statically does not show.
std::vector<std::string> mapped_copies();
// Empty if there is at most one, else what to tell the user.
std::string warning_about(const std::vector<std::string>& copies);

}  // namespace pc::nccl
