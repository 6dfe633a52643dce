// Where a libnccl.so.2 may be. Nothing is opened here: the list is a function of the environment that it is given.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pc::nccl {

// Said by the user: the only candidate then, and if it does not open that is an error.
inline constexpr std::string_view kLibraryVariable = "PYCOLLECTIVE_NCCL_LIB";
inline constexpr std::string_view kLibraryName = "libnccl.so.2";

// What a search looks at.
struct SearchEnvironment {
  std::function<std::string(std::string_view variable)> variable;  // empty: not set
  // The folders of Python's package nvidia.nccl, in the order of its search path; Python knows them without running code.
  std::vector<std::string> wheel_folders;
  std::function<std::string()>
      loaded;  // the path of a libnccl.so.2 that is in this process already; empty: none
};
SearchEnvironment process_environment(std::vector<std::string> wheel_folders = {});

struct Candidate {
  std::string how;   // "PYCOLLECTIVE_NCCL_LIB", "already loaded", "wheel", "CUDA_HOME", "loader"
  std::string path;  // for dlopen: a path, or the bare name, which the loader looks for itself
  bool explicitly = false;
};

// In the order in which they are to be tried. A copy that some framework has brought in comes before all others: the loader
// would open a different file as a second NCCL, beside the first.
std::vector<Candidate> candidates(const SearchEnvironment& around);

}  // namespace pc::nccl
