// One local peer: the channels to and from it, and the protocol on them. Frames are copied into and
// out of a channel as a whole, so no frame is ever partly written or read.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/waiter.h"
#include "shm/shared_copy.h"
#include "transport/shm/channel.h"
#include "transport/shm/wakeup.h"
#include "wire/link.h"

namespace pc {

// Thread-safety: none; its transport's lock guards it.
class ShmConnection {
 public:
  struct Ends {
    Rank me = 0, peer = 0;
    std::size_t my_place = 0, peer_place = 0;  // index among the ranks that share memory
    std::size_t ring_nbytes = 0;
    uint32_t epoch = 0;
    bool oversubscribed = false;
    CoreWatch* core = nullptr;
  };
  // `local_peers` and `wakeup` outlive this object; `header` is the peer's.
  ShmConnection(LocalPeers& local_peers, ShmWakeup& wakeup, const SegmentHeader& header, const Ends& ends,
                const LinkLimits& limits);
  ShmConnection(const ShmConnection&) = delete;
  ShmConnection& operator=(const ShmConnection&) = delete;

  Link& link() { return link_; }
  Rank peer() const { return ends_.peer; }
  bool unsent() const;  // a frame waits to be written, or a message waits for the peer's CLEAR
  // read() and write() move a bounded amount and return the number of frames moved. A failure
  // closes the connection.
  std::size_t read();
  std::size_t write();
  // The fast path of Transport. recv_at_once() does not wait for the message: it returns false if
  // none has arrived.
  bool send_at_once(const SendOp& op);
  bool recv_at_once(const RecvOp& op);
  struct Next {
    const ChannelSlot* slot;  // null: there is no slot to wait for
    uint64_t stamp;
    bool has_arrived() const { return slot->stamp.load(std::memory_order_seq_cst) == stamp; }
  };
  Next next();
  // True while a thread waits for next() without the lock. At most one thread may do so.
  std::atomic<bool>& waits_briefly() { return waits_briefly_; }
  Waiter& waiter() { return waiter_; }

  bool ended_by_peer() const {
    return open_ && theirs_ != nullptr && theirs_->ended.load(std::memory_order_seq_cst) != 0;
  }
  void send_goodbye();  // sent after all operations that are already posted
  // reads all that the peer wrote before its end, then closes, with `why` unless the peer has sent
  // goodbye
  void end_as_peer_did(const Status& why);
  void close(const Status& why);  // completes all operations, already posted and later ones, with `why`

 private:
  Status open();
  Result<bool> find_theirs();  // returns false if the peer has no channel to this rank yet
  Result<std::size_t> take();
  // A frame that has arrived. If it is short, its bytes are in the `words` that look() has filled.
  struct Arrived {
    FrameHeader header;
    const std::byte* at;  // payload, then description
    uint64_t bytes_end;   // position in the ring behind the frame's bytes
  };
  Result<Arrived> look(SlotWords& words) const;
  void taken(const Arrived& frame);
  Result<std::size_t> capacity_for_frame();
  void put(const FrameHeader& header, const ConstIoVec& payload, std::span<const std::byte> description);
  void announce(const SlotWords& words, std::size_t nbytes);
  uint64_t put_bytes(const ConstIoVec& payload, std::span<const std::byte> description);
  bool is_whole(const Arrived& frame) const;
  bool copy_behind(const Arrived& frame, std::byte* to) const;
  void report_taken();
  void broken(const Status& why);

  LocalPeers& local_peers_;
  ShmWakeup& wakeup_;
  const SegmentHeader& header_;
  const Ends ends_;
  Link link_;
  bool open_ = true;
  std::atomic<bool> waits_briefly_{false};
  Waiter waiter_;

  Channel* own_ = nullptr;  // created when something is to be written or taken
  std::span<std::byte> ring_;
  SharedCopy shared_copy_;
  uint64_t slots_ = 0, bytes_ = 0;  // written so far
  const Channel* theirs_ = nullptr;
  std::span<const std::byte> their_ring_;
  uint64_t slots_taken_ = 0, bytes_taken_ = 0;        // taken so far
  uint64_t slots_reported_ = 0, bytes_reported_ = 0;  // the values that were last reported to the peer
};

}  // namespace pc
