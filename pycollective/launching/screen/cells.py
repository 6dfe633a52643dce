"""Cuts a text to the width of a terminal row."""

from __future__ import annotations

import re
from unicodedata import category, east_asian_width

_COLOUR = re.compile(r"(\x1b\[[\d;:]*m)")
_NO_COLOUR = "\x1b[0m"


def width_of(character: str) -> int:
    """Return the number of terminal cells that a character takes."""
    if category(character) in ("Mn", "Me", "Cf", "Cc"):  # accents, joiners, control characters
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def fitted(text: str, cells: int) -> str:
    """Return the longest beginning of the text that fits into `cells`.

    Colours take no cells and are reset at the end. Tabs become spaces, and other control characters
    are dropped.
    """
    shown, coloured = "", False
    for part in _COLOUR.split(text.replace("\t", "    ")):
        if _COLOUR.fullmatch(part):
            shown, coloured = shown + part, True
            continue
        for character in part:
            cells -= width_of(character)
            if cells < 0:
                return shown + (_NO_COLOUR if coloured else "")
            if category(character) != "Cc":
                shown += character
    return shown + (_NO_COLOUR if coloured else "")
