// Candidate paths of libnccl.so.2. Nothing is opened here: the list depends only on the given
// environment.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pc::nccl {

// If the user sets this variable, its value is the only candidate, and failing to open it is an
// error.
inline constexpr std::string_view kLibraryVariable = "PYCOLLECTIVE_NCCL_LIB";
inline constexpr std::string_view kLibraryName = "libnccl.so.2";

// The inputs of a search.
struct SearchEnvironment {
  // returns the value of a variable; empty: it is not set
  std::function<std::string(std::string_view variable)> variable;
  // The folders of Python's package nvidia.nccl, in the order of its search path. Python finds them
  // without running the package's code.
  std::vector<std::string> wheel_folders;
  std::function<std::string()>
      loaded;  // returns the path of a libnccl.so.2 that is already loaded in this process; empty: none
};
SearchEnvironment process_environment(std::vector<std::string> wheel_folders = {});

struct Candidate {
  std::string how;   // "PYCOLLECTIVE_NCCL_LIB", "already loaded", "wheel", "CUDA_HOME", "loader"
  std::string path;  // for dlopen: a path, or the bare name, which the loader resolves
  bool explicitly = false;
};

// Returns the candidates in the order in which they are to be tried. A copy that a framework has
// loaded precedes all others, because opening a different file would load a second NCCL beside it.
std::vector<Candidate> candidates(const SearchEnvironment& around);

}  // namespace pc::nccl
