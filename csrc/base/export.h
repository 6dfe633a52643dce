// Marks what the module and the benchmark use of layers that are compiled with hidden symbols
// (csrc/CMakeLists.txt).
#pragma once

#define PC_EXPORT [[gnu::visibility("default")]]
