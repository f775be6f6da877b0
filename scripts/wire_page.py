"""Writes the tables of docs/wire.md from the code, between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.

Run by ``make docs``; with ``--check`` it only says whether the page is behind the code. A page that is not there yet is
begun; prose outside the marks is left alone.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from aiops.wire.frame import FIELDS, PROTOCOL, Kind
from aiops.wire.message import MINOR, TYPES

PAGE = Path(__file__).parents[1] / "docs" / "wire.md"
BEGINNING = """# The wire

<!-- begin version -->
<!-- end version -->

## The header

<!-- begin header -->
<!-- end header -->

## Kinds of frame

<!-- begin kinds -->
<!-- end kinds -->
"""


def version() -> str:
    """Return the sentence that names the protocol version."""
    return f"This page is about protocol {PROTOCOL}.{MINOR}. All numbers are little endian."


def header() -> str:
    """Return the header's fields as a table."""
    rows, offset = ["| offset | bytes | field | what it holds |", "|---|---|---|---|"], 0
    for name, size, meaning in FIELDS:
        rows.append(f"| {offset} | {size} | {name} | {meaning} |")
        offset += size
    return "\n".join(rows)


def kinds() -> str:
    """Return the frame kinds as a table: number, name, the message's own docstring and its fields."""
    rows = ["| number | kind | message | fields, in order |", "|---|---|---|---|"]
    for kind in Kind:
        form = TYPES.get(kind)
        meaning = "raw bytes of one key" if form is None else inspect.cleandoc(form.__doc__ or "")
        fields = () if form is None else form.__struct_fields__
        first = (
            meaning.partition("\n\n")[0].replace("\n", " ").replace("``", "`").replace("|", "\\|")
        )
        rows.append(f"| {int(kind)} | {kind.name} | {first} | {', '.join(fields)} |")
    return "\n".join(rows)


def fill(page: str) -> str:
    """Return the page with every table that it asks for, written anew."""
    for make in (version, header, kinds):
        begin, end = (f"<!-- {word} {make.__name__} -->" for word in ("begin", "end"))
        if begin in page and end in page:
            before, _, rest = page.partition(begin)
            page = f"{before}{begin}\n{make()}\n{end}{rest.partition(end)[2]}"
    return page


def main() -> None:
    """Write the page, or compare it."""
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and fill(page := PAGE.read_text(encoding="utf-8")) != page:
            sys.exit("docs/wire.md is behind the code: make docs")
        return
    PAGE.write_text(
        fill(PAGE.read_text(encoding="utf-8") if PAGE.exists() else BEGINNING), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
