"""How scripts/docs has Sphinx build the site.

It reads the whole repository, so that links between pages also work on GitHub.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent
ROOT = SITE.parents[1]
sys.path.insert(0, str(SITE))

project = "pycollective"
author = "the authors of pycollective"
project_copyright = author
version = release = (ROOT / "pycollective/_version.py").read_text().split('"')[-2]

extensions = ["myst_parser", "sphinx.ext.autodoc", "contents", "docstrings"]
root_doc = "docs/README"
include_patterns = ["*.md", "docs/**.md", "benchmarks/*.md", "examples/**.md"]
exclude_patterns = [".*", "build", "dist", "csrc", "bindings", "tests", "pycollective", "docs/licenses"]
nitpicky = True  # a name that leads nowhere is an error, as a link is
nitpick_ignore_regex = [("py:class", ".*")]  # types in signatures: most are of other libraries
highlight_language = "none"  # of a block that names none: most are drawings and output
smartquotes = False  # "sum" and --stdin are what one types
suppress_warnings = ["myst.header"]  # a page may begin with a heading of any level

myst_heading_anchors = 4
# As on GitHub, a line that begins with "%" is text: after a break, 5 % may begin one with its sign.
myst_disable_syntax = ["myst_line_comment", "myst_block_break"]
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_mock_imports = [name for name in ("jax", "paddle", "torch") if importlib.util.find_spec(name) is None]
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

linkcheck_timeout = 20

html_theme = "furo"
html_title = f"pycollective {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
templates_path = ["templates"]
html_additional_pages = {"index": "front.html"}
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
