"""A suite in a process of its own, for one whose calls would keep our loop from hearing a signal.

A call of a library may take seconds and cannot be interrupted; its process can be ended at any time.
``python -m aiops.bench.apart SUITE SCRATCH [quick]`` prints a line of JSON for each result and each piece of news.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TypeAlias

import msgspec

from aiops.bench.peers.base import announce, end_with_parent
from aiops.bench.result import Figure, Line, Miss, Row, encode
from aiops.bench.run import Bench
from aiops.errors import AiopsError
from aiops.launch.process import Child

# Between two pieces of news is one case: all contenders, some of which take seconds a call.
CASE_S = 600.0


class News(msgspec.Struct, frozen=True, tag="news"):
    """What a view is told; ``over`` with the last one."""

    text: str = ""
    warning: bool = False
    over: bool = False


_Told: TypeAlias = Row | Figure | Miss | News
_decoder: msgspec.json.Decoder[_Told] = msgspec.json.Decoder(_Told)


async def apart(bench: Bench, suite: str) -> None:
    """Run a suite in a child and pass on what it tells; the child is gone when this is over or cancelled."""
    arguments = (suite, bench.scratch, *["quick"] * bench.quick)
    try:
        async with Child("aiops.bench.apart", arguments, name=suite) as child:
            while not _over(bench, _decoder.decode(await child.hear(CASE_S))):
                pass
    except AiopsError as error:
        # What it has told is worth showing, and other suites can go on.
        bench.view.warn(str(error))
        bench.put(Miss(bench=suite, case="", peer="", reason=str(error)))


def _over(bench: Bench, told: _Told) -> bool:
    if not isinstance(told, News):
        bench.put(told)
        return False
    if told.text:
        (bench.view.warn if told.warning else bench.view.say)(told.text)
    return told.over


class _Teller:
    def say(self, text: str) -> None:
        self.news(News(text))

    def warn(self, text: str) -> None:
        self.news(News(text, warning=True))

    def news(self, news: News) -> None:
        announce(msgspec.json.encode(news).decode())

    def put(self, line: Line) -> None:
        announce(encode(line))


def main() -> None:
    """Be the child."""
    end_with_parent()
    suite, scratch, *quick = sys.argv[1:]
    teller = _Teller()
    bench = Bench(teller, teller.put, scratch=scratch, quick=bool(quick))
    asyncio.run(importlib.import_module(f"aiops.bench.suites.{suite}").run(bench))
    teller.news(News(over=True))


if __name__ == "__main__":
    main()
