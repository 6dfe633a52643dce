// Moves the bytes of frames for a Link.
#pragma once

#include <cstddef>
#include <span>

namespace pc {

// What a Link needs of a mover that is asked to stop in the middle of a frame. Called from inside the Link's methods.
class Mover {
 public:
  // Payloads of frames that are out and not yet written: their memory is about to go. Copies what is still needed.
  virtual void keep_unsent() = 0;
  // The payload that is arriving belongs `there` from its next byte on (same size): it will not be used, only checked.
  virtual void redirect(std::span<std::byte> there) = 0;

 protected:
  ~Mover() = default;
};

}  // namespace pc
