// Exports a symbol from a layer that is compiled with hidden visibility (csrc/CMakeLists.txt),
// because the Python module or the benchmark uses it.
#pragma once

#define PC_EXPORT [[gnu::visibility("default")]]
