// Detects where the arrays of a call are stored, and so which path it takes, without the array
// library. FAKES of the driver and of NCCL.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "message_world.h"

namespace pc::testing {
namespace {

using ArrayPlaces = MessageWorld;
INSTANTIATE_TEST_SUITE_P(Over, ArrayPlaces, ::testing::Values(Over::kInproc),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

UserCall without_place(UserCall call) {
  call.request.in.device.index = call.request.out.device.index = kUnknownGpu;
  return call;
}

TEST_P(ArrayPlaces,
       the_driver_says_on_which_gpu_a_call_is_made_and_both_ways_of_calling_take_collectives_and_messages) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    const std::shared_ptr<DeviceGroups> mine = gpus(runtime, group.rank());
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), static_cast<float>(group.rank() + 1)));
    const UserCall sum = without_place({.request = x.sum().request});
    PC_TRY(mine->run(group, sum, -1));
    drain(x);
    PC_TRY(expect(x, 3));
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> again, mine->begin(group, sum, {}));
    const std::optional<Status> ended = again->wait({Deadline::after(kLong)});
    if (!ended || !ended->is_ok() || !again->outcome()) return wrong("it has not ended well");
    PC_TRY(expect(x, 6));
    const bool sends = group.rank() == 0;
    if (sends) std::fill(x.begin(), x.begin() + x.count, 9.0F);
    PC_TRY(
        mine->run(group, without_place(message(x, sends ? Kind::kSend : Kind::kRecv, 1 - group.rank())), -1));
    drain(x);
    PC_TRY(expect(x, 9));
    return mine->close(kLong);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(ArrayPlaces, a_list_on_two_gpus_and_host_memory_are_refused_before_anything_is_sent) {
  const Outcomes outcomes = run(1, [&](Runtime& runtime, Communicator& group) -> Status {
    const std::shared_ptr<DeviceGroups> mine = gpus(runtime, 0);
    PC_ASSIGN_OR_RETURN(Array x, filled(0, 1));
    PC_ASSIGN_OR_RETURN(Array y, filled(1, 1));
    IoVec list;
    for (Array* each : {&x, &y})
      list.add_separate(reinterpret_cast<std::byte*>(each->begin()), each->count * sizeof(float));
    UserCall call = without_place({.request = x.sum().request});
    Buffer& out = call.request.out;
    out.data = nullptr;
    out.list = &list;
    out.count *= 2;
    call.request.in = out;
    PC_TRY(expect_code(mine->run(group, call, -1), Code::kInvalidArgument, "lie on GPU 0 and GPU 1"));
    std::array<float, 4> on_host{};
    call = without_place({.request = x.sum().request});
    call.request.out.data = reinterpret_cast<std::byte*>(on_host.data());
    call.request.in = call.request.out;
    PC_TRY(expect_code(mine->begin(group, call, {}).status(), Code::kInvalidArgument,
                       "says that it lies on a GPU, but its memory is"));
    return mine->close(kLong);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
