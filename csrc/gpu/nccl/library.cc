#include "gpu/nccl/library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace pc::nccl {
namespace {

struct Opened {
  Api api;
  std::string path;
};

std::string file_of(void* symbol, const std::string& otherwise) {
  Dl_info info = {};
  const bool known = ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr;
  return known ? info.dli_fname : otherwise;
}

Result<Opened> open_one(const Candidate& candidate) {
  const bool is_path = candidate.path.find('/') != std::string::npos;
  if (is_path && ::access(candidate.path.c_str(), F_OK) != 0) return unsupported("no such file");
  void* const library = ::dlopen(candidate.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one per thread
    return unsupported(why != nullptr ? why : "dlopen gave no reason");
  }
  PC_ASSIGN_OR_RETURN(Api api, load_api([&](const char* name) { return ::dlsym(library, name); }));
  return Opened{api, file_of(reinterpret_cast<void*>(api.get_version), candidate.path)};
}

std::string list_of(const std::vector<Attempt>& tried) {
  std::string text;
  for (const Attempt& each : tried) text += "\n  " + each.how + ": " + each.path + ": " + each.why;
  return text;
}

Status nothing_found(const std::vector<Attempt>& tried, bool explicitly) {
  if (explicitly) {
    const Attempt& only = tried.front();
    return unsupported("NCCL cannot be used: " + only.how + "=" + only.path + ": " + only.why +
                       ". Nothing else is tried while that variable is set");
  }
  return unsupported(
      "NCCL cannot be used: no libnccl.so.2 that fits was found. `pip install nvidia-nccl-cu13` "
      "brings one (for CUDA 12: nvidia-nccl-cu12), and " +
      std::string(kLibraryVariable) + " names one. Looked at:" + list_of(tried));
}

int note_copy(dl_phdr_info* info, std::size_t, void* into) {
  constexpr std::string_view kStem = "libnccl.so";
  const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  if (name.substr(0, kStem.size()) == kStem) static_cast<std::vector<std::string>*>(into)->emplace_back(path);
  return 0;
}

}  // namespace

Result<Library> Library::open(const SearchEnvironment& around) {
  std::vector<Attempt> tried;
  bool explicitly = false;
  for (const Candidate& candidate : candidates(around)) {
    Result<Opened> opened = open_one(candidate);
    if (opened.is_ok()) {
      return Library(std::make_shared<const Api>(opened.value().api), candidate.how, opened.value().path,
                     std::move(tried));
    }
    explicitly = candidate.explicitly;
    tried.push_back({candidate.how, candidate.path, opened.status().message()});
  }
  return nothing_found(tried, explicitly);
}

std::string Library::to_string() const {
  return "NCCL " + text_of(api_->version) + " from " + path_ + " (" + how_ + ")";
}

std::vector<std::string> mapped_copies() {
  std::vector<std::string> paths;
  ::dl_iterate_phdr(note_copy, &paths);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string warning_about(const std::vector<std::string>& copies) {
  if (copies.size() < 2) return "";
  std::string text = std::to_string(copies.size()) + " different NCCL libraries are in this process:";
  for (const std::string& path : copies) text += " " + path;
  return text + ". Each takes GPU memory of its own; set " + std::string(kLibraryVariable) +
         " to the one that the framework uses";
}

}  // namespace pc::nccl
