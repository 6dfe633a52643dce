"""The diffs of docs/add apply to this repository.

tests/full/add_walkthroughs.py tests the result.
"""

from __future__ import annotations

import pytest
from add_pages import PAGES, ROOT, Page

pytestmark = pytest.mark.timeout(60)


def test_there_is_a_page_for_an_algorithm_an_array_library_a_collective_and_a_dtype() -> None:
    assert {page.name for page in PAGES} == {"algorithm", "array_library", "collective", "dtype"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_diff_applies(page: Page) -> None:
    applied = page.apply(ROOT, "--check")
    assert applied.returncode == 0, applied.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_diff_touches_the_files_that_the_page_names_and_no_others(page: Page) -> None:
    assert page.touched() == page.files
