// The exit code of a process whose program has ended well, although a result that it used was wrong.
#pragma once

namespace pc {

// From now on this process exits with 1, whatever code the interpreter ends it with.
void fail_at_exit();

}  // namespace pc
