// The exit code of a process if its program ended normally but used a wrong result.
#pragma once

namespace pc {

// From now on this process exits with 1 where its program would exit with 0.
void fail_at_exit();

}  // namespace pc
