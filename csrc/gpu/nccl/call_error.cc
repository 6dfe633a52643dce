#include "gpu/nccl/call_error.h"

#include <string>

namespace pc::nccl {
namespace {

Code kind_of(ReturnCode code) {
  switch (code) {
    case ReturnCode::kSuccess:
    case ReturnCode::kInProgress: return Code::kInternal;
    case ReturnCode::kInvalidArgument: return Code::kInvalidArgument;
    case ReturnCode::kInvalidUsage: return Code::kUnsupported;  // such as two ranks on one GPU
    case ReturnCode::kRemoteError: return Code::kPeerFailure;
    case ReturnCode::kTimeout: return Code::kTimeout;
    case ReturnCode::kUnhandledCudaError:
    case ReturnCode::kSystemError:
    case ReturnCode::kInternalError: break;
  }
  return Code::kSystem;
}

std::string_view text_or_nothing(const char* text) { return text != nullptr ? text : ""; }

}  // namespace

Status call_error(const Api& api, CommHandle comm, std::string_view call, ReturnCode code) {
  std::string message = std::string(call) + ": " + text_of(code);
  if (const std::string_view text = text_or_nothing(api.get_error_string(code)); !text.empty())
    message += ", " + std::string(text);
  if (const std::string_view last = text_or_nothing(api.get_last_error(comm)); !last.empty())
    message += "; NCCL's last error: " + std::string(last);
  return Status(kind_of(code), std::move(message));
}

}  // namespace pc::nccl
