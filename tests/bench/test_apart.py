"""A suite in a process of its own: what it tells arrives, and it is gone when nobody listens."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from aiops.bench import apart
from aiops.bench.result import Miss, Row, row
from aiops.bench.run import Bench

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

# A suite as a child would find it; sleep holds the loop's thread as a library's call does.
SUITE = """
import time
from aiops.bench.result import row

async def run(bench):
    bench.view.say(f"{bench.quick} {bench.scratch}")
    bench.view.warn("others were busy")
    bench.put(row("own", "case", "aiops", [1.0, 2.0], ratios=[1.0, 1.0], goal="<= 1.2"))
    END
"""


class Heard(list):
    def say(self, text):
        self.append(("said", text))

    def warn(self, text):
        self.append(("warned", text))


@pytest.fixture
def suite(monkeypatch, tmp_path):
    """Makes a suite that ends as it is told, under the module name that is returned."""

    def make(end):
        (tmp_path / "sitecustomize.py").write_text(
            "import importlib.util, sys\n"
            "spec = importlib.util.spec_from_file_location('aiops.bench.suites.own', "
            f"{str(tmp_path / 'own.py')!r})\n"
            "sys.modules['aiops.bench.suites.own'] = module = importlib.util.module_from_spec(spec)\n"
            "spec.loader.exec_module(module)\n"
        )
        (tmp_path / "own.py").write_text(SUITE.replace("END", end))
        path = os.pathsep.join([str(tmp_path), str(Path(apart.__file__).parents[2])])
        monkeypatch.setenv("PYTHONPATH", path)
        return "own"

    return make


def a_bench(heard):
    return Bench(heard, heard.append, scratch="here", quick=True)


async def test_what_a_suite_tells_arrives(suite):
    heard = Heard()
    await apart.apart(a_bench(heard), suite("pass"))
    assert heard == [
        ("said", "True here"),
        ("warned", "others were busy"),
        row("own", "case", "aiops", [1.0, 2.0], ratios=[1.0, 1.0], goal="<= 1.2"),
    ]


async def test_a_suite_that_raises_is_named_and_what_it_told_stays(suite):
    heard = Heard()
    await apart.apart(a_bench(heard), suite("raise ValueError('no such vector')"))
    assert [type(line) for line in heard[2:]] == [Row, tuple, Miss]
    assert heard[-1].reason == "own ended with 1: ValueError: no such vector"


async def test_a_call_of_seconds_does_not_keep_anybody_waiting(suite):
    name, begun = suite("time.sleep(50)"), asyncio.Event()
    bench = Bench(Heard(), lambda line: begun.set(), scratch="", quick=True)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(apart.apart(bench, name))
        await begun.wait()
        start = time.monotonic()
        running.cancel()
    assert time.monotonic() - start < 1.5
