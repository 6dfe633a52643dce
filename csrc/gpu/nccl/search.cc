#include "gpu/nccl/search.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>

namespace pc::nccl {
namespace {

constexpr std::array<std::string_view, 5> kRoots = {"NCCL_ROOT", "NCCL_HOME", "CONDA_PREFIX", "CUDA_HOME",
                                                    "CUDA_PATH"};
constexpr std::array<std::string_view, 4> kFolders = {"lib", "lib64", "lib/x86_64-linux-gnu",
                                                      "lib/aarch64-linux-gnu"};

std::string value_of(std::string_view variable) {
  // Safe, because no code of this library writes the environment.
  const char* const value = std::getenv(std::string(variable).c_str());  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr ? value : "";
}

// Returns the path of the libnccl.so.2 that is already loaded, whatever library has loaded it.
std::string loaded_path() {
  void* const library = ::dlopen(kLibraryName.data(), RTLD_NOLOAD | RTLD_NOW);
  if (library == nullptr) return "";
  void* const symbol = ::dlsym(library, "ncclGetVersion");
  Dl_info info = {};
  if (symbol != nullptr && ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr) return info.dli_fname;
  return std::string(kLibraryName);
}

}  // namespace

SearchEnvironment process_environment(std::vector<std::string> wheel_folders) {
  return {value_of, std::move(wheel_folders), loaded_path};
}

std::vector<Candidate> candidates(const SearchEnvironment& around) {
  const std::string name(kLibraryName);
  if (std::string said = around.variable(kLibraryVariable); !said.empty())
    return {{std::string(kLibraryVariable), std::move(said), true}};
  std::vector<Candidate> list;
  if (std::string path = around.loaded(); !path.empty()) list.push_back({"already loaded", std::move(path)});
  for (const std::string& folder : around.wheel_folders) list.push_back({"wheel", folder + "/lib/" + name});
  for (const std::string_view root : kRoots) {
    const std::string folder = around.variable(root);
    if (folder.empty()) continue;
    for (const std::string_view below : kFolders)
      list.push_back({std::string(root), folder + "/" + std::string(below) + "/" + name});
  }
  list.push_back({"loader", name});
  return list;
}

}  // namespace pc::nccl
