#include "engine/flight_text.h"

#include <cstdio>
#include <optional>
#include <string_view>

#include "plan/contracts.h"

namespace pc {
namespace {

using Kind = CallRecord::Kind;

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kNone: return "none";
    case Kind::kCollective: return "collective";
    case Kind::kConfirmation: return "confirmation";
    case Kind::kShutdown: return "shutdown";
    case Kind::kSend: return "send";
    case Kind::kRecv:
    case Kind::kProbe: return "recv";  // a recv that has to find its message first
  }
  return "unknown";
}

std::string_view name_of(CallRecord::State state) {
  switch (state) {
    case CallRecord::State::kRunning: return "running";
    case CallRecord::State::kDone: return "done";
    case CallRecord::State::kFailed: return "failed";
  }
  return "unknown";
}

bool is_message(const CallRecord& call) {
  return call.kind == Kind::kSend || call.kind == Kind::kRecv || call.kind == Kind::kProbe;
}
bool is_collective(const CallRecord& call) {
  return call.kind == Kind::kCollective || call.kind == Kind::kConfirmation;
}
bool has_data(const CallRecord& call) {
  return (is_message(call) && call.kind != Kind::kProbe) ||
         (is_collective(call) && call.collective != Collective::kBarrier);
}
bool has_op(const CallRecord& call) { return is_collective(call) && reduces(call.collective); }
bool has_root_or_peer(const CallRecord& call) {
  return is_message(call) || (has_data(call) && is_rooted(call.collective));
}

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }
int64_t elapsed_ns(const CallRecord& call, int64_t now_ns) {
  return (call.ended_ns != 0 ? call.ended_ns : now_ns) - call.began_ns;
}

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[64];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string duration_text(int64_t ns) {
  return ns < 1'000'000'000 ? print("%.3f ms", seconds(ns) * 1e3) : print("%.1f s", seconds(ns));
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += print("\\u%04x", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Collects the fields of one JSON object. nullopt and null pointers become null.
class Fields {
 public:
  void text(const char* name, std::optional<std::string_view> value) {
    raw(name, value ? quoted(*value) : "null");
  }
  void text(const char* name, const char* value) {
    text(name, value != nullptr ? std::optional<std::string_view>(value) : std::nullopt);
  }
  template <class T>
  void number(const char* name, std::optional<T> value) {
    raw(name, value ? std::to_string(*value) : "null");
  }
  void seconds(const char* name, int64_t ns) { raw(name, print("%.9f", pc::seconds(ns))); }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  void raw(const char* name, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + quoted(name) + ": " + value;
  }
  std::string text_;
};

template <class T>
std::optional<T> only_if(bool there, T value) {
  return there ? std::optional<T>(value) : std::nullopt;
}

std::string object_of(const CallRecord& call, int64_t now_ns) {
  const std::string reduction = has_op(call) ? text_of({call.op, call.factor}) : "";
  const std::string dtype = text_of(call.dtype, call.layout);
  Fields fields;
  fields.text("kind", name_of(call.kind));
  fields.text("collective", only_if(is_collective(call), name_of(call.collective)));
  fields.text("dtype", only_if(has_data(call), std::string_view(dtype)));
  fields.text("op", only_if(has_op(call), std::string_view(reduction)));
  fields.text("state", name_of(call.state));
  fields.text("result", only_if(call.state != CallRecord::State::kRunning, name_of(call.result)));
  fields.number("root_or_peer",
                only_if(has_root_or_peer(call) && call.root_or_peer != kAnyRank, call.root_or_peer));
  fields.number("group", std::optional(call.group));
  fields.number("tag", only_if(is_message(call), call.tag));
  fields.number("sequence", std::optional(call.sequence));
  fields.text("digest", print("%016llx", static_cast<unsigned long long>(call.digest)));
  fields.number("count", only_if(has_data(call), count_of_items(call.count, call.layout)));
  fields.text("algorithm", call.algorithm);
  fields.text("site", call.site);
  fields.seconds("began_s", call.began_ns - now_ns);
  fields.seconds("elapsed_s", elapsed_ns(call, now_ns));
  return fields.object();
}

}  // namespace

std::string line_of(const CallRecord& call, int64_t now_ns) {
  std::string text;
  if (!is_message(call)) text += "#" + std::to_string(call.sequence) + " ";
  if (call.kind == Kind::kConfirmation) text += "confirmation of ";
  text += is_collective(call) ? name_of(call.collective) : name_of(call.kind);
  if (has_data(call)) {
    text += " " + array_text(call.dtype, call.count, call.layout);
  }
  if (has_op(call)) text += " " + text_of({call.op, call.factor});
  if (has_root_or_peer(call)) {
    text += is_collective(call) ? " root " : call.kind == Kind::kSend ? " to " : " from ";
    text += is_collective(call) ? std::to_string(call.root_or_peer) : rank_text(call.root_or_peer);
  }
  if (is_message(call)) text += " tag " + std::to_string(call.tag);
  if (call.algorithm != nullptr) text += std::string(" (") + call.algorithm + ")";
  text += ", group " + std::to_string(call.group);
  if (call.site != nullptr) text += std::string(", ") + call.site;
  text += ", " + std::string(name_of(call.state));
  if (call.state == CallRecord::State::kFailed) text += " (" + std::string(name_of(call.result)) + ")";
  text += call.state == CallRecord::State::kRunning ? " for " : " after ";
  return text + duration_text(elapsed_ns(call, now_ns));
}

std::string json_of(std::span<const CallRecord> calls, int64_t now_ns) {
  std::string text = "[";
  for (const CallRecord& call : calls) text += (text.size() > 1 ? ",\n" : "") + object_of(call, now_ns);
  return text + "]";
}

}  // namespace pc
