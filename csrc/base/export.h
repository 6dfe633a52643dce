// Marks what the module and the benchmark use of layers that are compiled to show nothing outside the library (csrc/CMakeLists.txt).
#pragma once

#define PC_EXPORT [[gnu::visibility("default")]]
