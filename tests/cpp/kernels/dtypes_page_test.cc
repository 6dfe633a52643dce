#include "kernels/dtypes_page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace pc {
namespace {

TEST(DtypesPage, the_page_in_docs_is_the_one_written_from_the_kernels) {
  std::ifstream file(PYCOLLECTIVE_DOCS "/dtypes.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), dtypes_markdown()) << "write dtypes_markdown() to docs/dtypes.md";
}

}  // namespace
}  // namespace pc
