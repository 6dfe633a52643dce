// One opened NCCL library. It is never unloaded, because a framework may use it too, and because it
// has threads of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "gpu/nccl/api.h"
#include "gpu/nccl/search.h"

namespace pc::nccl {

// A candidate that was rejected.
struct Attempt {
  std::string how, path, why;
};

// Thread-safety: immutable once the library is open.
class Library {
 public:
  // Opens the first candidate that can be loaded and used. Returns kUnsupported if there is none;
  // the message lists the candidates and possible remedies.
  static Result<Library> open(const SearchEnvironment& around);

  const Api& api() const { return *api_; }
  // May be used after this object is destroyed, because the NCCL library is never closed.
  std::shared_ptr<const Api> shared_api() const { return api_; }
  const std::string& how() const { return how_; }
  const std::string& path() const { return path_; }  // the file's path, as the loader knows it
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

// Returns the files named libnccl.so* that are mapped in this process now. Two copies are
// independent of each other: both take memory of the same GPU, and nothing orders calls across
// them. A copy that is linked statically into a framework is not found.
std::vector<std::string> mapped_copies();
// Returns a warning for the user if there are two or more copies, and an empty string otherwise.
std::string warning_about(const std::vector<std::string>& copies);

}  // namespace pc::nccl
