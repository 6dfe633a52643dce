// The exit code of a process whose program has ended well, although a result that it used was wrong.
#pragma once

namespace pc {

// From now on this process exits with 1 where its program chooses 0, or chooses nothing.
void fail_at_exit();

}  // namespace pc
