// Marks what the module and the benchmark use of layers whose symbols are hidden outside the
// library (csrc/CMakeLists.txt).
#pragma once

#define PC_EXPORT [[gnu::visibility("default")]]
