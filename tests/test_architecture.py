"""The house rules as a test: who may import whom, and what no file may do.

The walker reads source text only; nothing of aiops is imported. Every finding names the file, the line and the sentence
of the rule it breaks. The second half feeds the walker planted violations, so that a rule that does nothing shows up.
"""

# Longer than other files: a rule and the violation that proves it are changed together, so they live together.

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1] / "aiops"

# Room -> floor. A room is the first part of the path under aiops/; it knows the rooms beneath it and itself.
FLOORS = {
    **dict.fromkeys(["errors", "types", "trace"], 0),
    **dict.fromkeys(["buffers", "kernels", "policy", "url"], 1),
    **dict.fromkeys(["wire", "codec", "merge"], 2),
    **dict.fromkeys(["transport", "config"], 3),
    **dict.fromkeys(["server", "worker", "collective", "stream"], 4),
    **dict.fromkeys(["api", "observe", "data"], 5),
    **dict.fromkeys(["torch", "sync", "sim", "launch", "bench", "lab", "cli", "__main__"], 6),
}
FACE = "__init__"  # aiops/__init__.py stands between floors 5 and 6
TOP = 6

SANS_IO = {"buffers", "kernels", "policy", "wire", "codec", "merge"}
IO_MODULES = {
    "asyncio", "concurrent", "multiprocessing", "queue", "random", "select", "selectors", "signal", "socket", "ssl",
    "subprocess", "_thread", "threading", "time", "uvloop",
}  # fmt: skip
LOOPS = {"asyncio", "uvloop"}
THREADS = {"threading", "_thread"}
# A Condition is not among them: it wakes waiters and guards nothing.
LOCKS = {"Lock", "RLock", "Semaphore", "BoundedSemaphore"}
UNSAFE_MODULES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "_pickle", "shelve"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}

# What floor 4 may know of a room of decisions: the modules that hold its doors.
DOORS = {"policy": ("base", "exchange", "stream"), "codec": ("base",), "merge": ("base",)}

# File, or room -> why it may. A test at the end finds the excuses for single files that nothing needs any more.
MAY_IMPORT_TORCH = {
    "torch": "the door for PyTorch training loops",
    "collective": "collectives on torch.distributed",
    "bench": "torch is one of the libraries that ours is measured against; nobody who does not measure loads it",
    "lab/cnn.py": "what the labs train where a perceptron is not enough; loaded when a scenario asks for it",
}
MAY_USE_THREADS = {
    "transport/lane.py": "a lane moves bulk bytes off the loop, so that small messages are answered meanwhile",
    "bench/peers/grpc.py": "gRPC's own server calls back on a thread a worker, and the sum waits for all",
    "bench/peers/rpc_sum.py": "torch RPC calls back on threads of its own",
    "sync": "runs the asyncio client on a background thread for callers that block",
    "torch": "a training loop without asyncio steps while a background loop does the network",
}
MAY_SPAWN_TASKS = {
    "api/serving.py": "the server is a context manager: it ends its one task and waits for it in __aexit__",
    "launch/process.py": "a child is a context manager: its task ends with the pipe, __aexit__ waits for it",
    "worker/flat.py": "the client is a context manager: it ends its tasks and waits for them in __aexit__",
}
MAY_LOCK = {
    "transport/stream.py": "senders of one connection take turns; it guards a link, not parameters",
}
MAY_READ_ENVIRONMENT = {
    "cli": "the command line is where settings enter",
    "launch": "the launcher hands settings to its children",
    "bench/peers/gloo.py": "torch takes its network interface from nowhere else",
    "bench/peers/rpc.py": "torch takes its network interface from nowhere else",
    "kernels/_backend.py": "AIOPS_PURE, the switch by which tests take the numpy twins",
}


@dataclass(frozen=True, slots=True)
class Import:
    """One module that a file imports, as ``aiops.wire.frame`` or ``numpy``."""

    name: str
    line: int
    lazy: bool  # inside __getattr__ or under TYPE_CHECKING: not run when the module is imported


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed file and where it stands, with its path relative to aiops/."""

    path: PurePosixPath
    tree: ast.Module
    imports: tuple[Import, ...]

    @property
    def room(self) -> str:
        return self.path.parts[0].removesuffix(".py")

    def is_in(self, places: dict[str, str]) -> bool:
        return str(self.path) in places or self.room in places

    @property
    def is_demo(self) -> bool:
        return self.room in {"launch", "cli"} and self.path.parts[-1].startswith("demo")


# A finding is a line number and the sentence of the broken rule.
Findings = Iterator[tuple[int, str]]


def parse(path: str, text: str) -> Source:
    tree = ast.parse(text, filename=path)
    return Source(PurePosixPath(path), tree, tuple(_imports(tree, lazy=False)))


def _imports(node: ast.AST, *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.level == 0:
            yield from _imported_from(child, lazy)
        elif isinstance(child, ast.Call) and _name(child.func) in {"import_module", "__import__"}:
            first = child.args[0] if child.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Import(first.value, child.lineno, lazy)
        put_off = (isinstance(child, ast.FunctionDef) and child.name == "__getattr__") or (
            isinstance(child, ast.If) and _name(child.test) == "TYPE_CHECKING"
        )
        yield from _imports(child, lazy=lazy or put_off)


def _imported_from(node: ast.ImportFrom, lazy: bool) -> Iterator[Import]:
    # What is imported from a room may be a module (`from aiops.policy import base`) or a name, which only the file tree
    # could tell. Both count as modules: a rule that tells them apart looks for the module it allows.
    module = node.module or ""
    if module == "aiops" or (module.startswith("aiops.") and module.count(".") == 1):
        yield from (Import(f"{module}.{alias.name}", node.lineno, lazy) for alias in node.names)
    else:
        yield Import(module, node.lineno, lazy)


def _name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name: ``create_task`` for ``asyncio.create_task``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _top(name: str) -> str:
    return name.partition(".")[0]


def _room_of(imported: Import) -> str | None:
    """Return the room an import leads to, FACE for the package itself, None for what is not ours."""
    parts = imported.name.split(".")
    if parts[0] != "aiops":
        return None
    if len(parts) == 1 or parts[1] not in FLOORS:
        # `from aiops import connect`: a name of the face. A module that has no floor is found by its own file.
        return FACE
    return parts[1]


def every_room_has_a_floor(source: Source) -> Findings:
    if source.room not in FLOORS and source.room != FACE:
        yield (
            1,
            f"room {source.room!r} stands on no floor: give it one in FLOORS and in docs/design.md",
        )


def imports_are_absolute(source: Source) -> Findings:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            yield node.lineno, "imports are absolute: write the path from aiops down"


def imports_point_down(source: Source) -> Findings:
    here = source.room
    floor = 5.5 if here == FACE else FLOORS.get(here, TOP)
    for imported in source.imports:
        there = _room_of(imported)
        if there is None or there == here:
            continue
        if there == FACE:
            if floor < TOP:
                yield (
                    imported.line,
                    f"the face re-exports the rooms, so {here} must import the room itself",
                )
        elif here == FACE:
            if FLOORS[there] == TOP and not imported.lazy:
                yield (
                    imported.line,
                    f"the face imports floors 0 to 5, {there} only inside __getattr__",
                )
        elif FLOORS[there] > floor:
            yield imported.line, f"imports point down: {here} (floor {floor}) must not know {there}"
        elif FLOORS[there] == floor and floor < TOP:
            yield imported.line, f"rooms on one floor do not know each other: {here} and {there}"


def transport_knows_no_decisions(source: Source) -> Findings:
    for imported in source.imports:
        if source.room == "transport" and _room_of(imported) in {"policy", "codec"}:
            yield imported.line, f"transport moves bytes, it must not know {_room_of(imported)}"


def policies_and_codecs_come_in(source: Source) -> Findings:
    if FLOORS.get(source.room) != 4:
        return
    for imported in source.imports:
        there = _room_of(imported)
        doors = [f"aiops.{there}.{door}." for door in DOORS.get(there, ())]
        if doors and not f"{imported.name}.".startswith(tuple(doors)):
            yield (
                imported.line,
                f"{source.room} knows aiops.{there}.base only: a concrete {there} is handed in from above",
            )


def numbers_and_bytes_are_sans_io(source: Source) -> Findings:
    for imported in source.imports:
        top = _top(imported.name)
        if source.room in SANS_IO and top in IO_MODULES:
            yield (
                imported.line,
                f"{source.room} is sans-IO: no {top}, time and randomness come in as arguments",
            )
        if source.room == "config" and top in LOOPS:
            yield imported.line, f"config is read before any loop runs: no {top}"


def the_engine_never_waits(source: Source) -> Findings:
    if str(source.path) not in {"server/engine.py", "server/advice.py"}:
        return
    for imported in source.imports:
        if _top(imported.name) in IO_MODULES:
            yield imported.line, f"the engine turns events into actions: no {_top(imported.name)}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith):
            yield node.lineno, "the engine turns events into actions: nothing in it is async"


def torch_stays_in_its_rooms(source: Source) -> Findings:
    if source.is_in(MAY_IMPORT_TORCH) or source.is_demo:
        return
    for imported in source.imports:
        if _top(imported.name) == "torch":
            yield imported.line, "only torch.py, collective/, bench/ and the demos import torch"


def the_environment_is_read_at_the_door(source: Source) -> Findings:
    if source.is_in(MAY_READ_ENVIRONMENT):
        return
    for node in ast.walk(source.tree):
        by_attribute = isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT
        by_import = (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and any(alias.name in ENVIRONMENT for alias in node.names)
        )
        if by_attribute or by_import:
            yield node.lineno, "environment variables are read in cli/ and launch/ only"


def modules_postpone_annotations(source: Source) -> Findings:
    future = any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for node in source.tree.body
    )
    for node in source.tree.body:
        # A docstring, imports and __all__ are a table of contents, not code.
        contents = (
            isinstance(node, ast.Import | ast.ImportFrom)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            or (isinstance(node, ast.Assign) and _name(node.targets[0]) == "__all__")
        )
        if not contents and not future:
            yield node.lineno, "a module with code starts with `from __future__ import annotations`"
            return


def every_task_has_an_owner(source: Source) -> Findings:
    if source.is_in(MAY_SPAWN_TASKS):
        return
    sentence = "every task has an owner: start it in a TaskGroup"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            if any(alias.name in {"create_task", "ensure_future"} for alias in node.names):
                yield node.lineno, sentence
        elif isinstance(node, ast.Attribute) and (
            node.attr == "ensure_future" or (node.attr == "create_task" and _is_loop(node.value))
        ):
            yield node.lineno, sentence


def _is_loop(node: ast.expr) -> bool:
    # A TaskGroup has the same verb, so the receiver decides: the module, a loop by name, or a call that returns one.
    name = _name(node.func) if isinstance(node, ast.Call) else _name(node)
    return name == "asyncio" or name.endswith("loop")


def nothing_runs_foreign_bytes(source: Source) -> Findings:
    for imported in source.imports:
        if _top(imported.name) in UNSAFE_MODULES:
            yield (
                imported.line,
                f"bytes from outside are data, never code: no {_top(imported.name)}",
            )
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
            yield node.lineno, f"bytes from outside are data, never code: no {node.func.id}()"
        for keyword in node.keywords:
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if (keyword.arg, value) in {("allow_pickle", True), ("weights_only", False)}:
                yield (
                    node.lineno,
                    f"bytes from outside are data, never code: no {keyword.arg}={value}",
                )


def one_writer_needs_no_thread(source: Source) -> Findings:
    if source.is_in(MAY_USE_THREADS):
        return
    for imported in source.imports:
        if _top(imported.name) in THREADS:
            yield (
                imported.line,
                f"one writer per shard, no {_top(imported.name)}: who may is in MAY_USE_THREADS",
            )


def one_writer_needs_no_lock(source: Source) -> Findings:
    if source.is_in(MAY_LOCK) or source.is_in(MAY_USE_THREADS):
        return
    for node in ast.walk(source.tree):
        by_import = (
            isinstance(node, ast.ImportFrom)
            and node.module == "asyncio"
            and any(alias.name in LOCKS for alias in node.names)
        )
        by_attribute = (
            isinstance(node, ast.Attribute)
            and node.attr in LOCKS
            and _name(node.value) in {"asyncio", "multiprocessing"}
        )
        if by_import or by_attribute:
            yield (
                node.lineno,
                "one writer per shard, no locks in the package: who may is in MAY_LOCK",
            )


RULES: tuple[Callable[[Source], Findings], ...] = (
    every_room_has_a_floor,
    imports_are_absolute,
    imports_point_down,
    transport_knows_no_decisions,
    policies_and_codecs_come_in,
    numbers_and_bytes_are_sans_io,
    the_engine_never_waits,
    torch_stays_in_its_rooms,
    the_environment_is_read_at_the_door,
    modules_postpone_annotations,
    every_task_has_an_owner,
    nothing_runs_foreign_bytes,
    one_writer_needs_no_thread,
    one_writer_needs_no_lock,
)


def broken(path: str, text: str) -> list[str]:
    """Return one line per broken rule: ``wire/frame.py:3: sentence``."""
    source = parse(path, text)
    return [f"{path}:{line}: {sentence}" for rule in RULES for line, sentence in rule(source)]


FILES = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*.py"))]


@pytest.mark.parametrize("path", FILES)
def test_the_house_rules_hold(path):
    findings = broken(path, (ROOT / path).read_text(encoding="utf-8"))
    assert not findings, "\n" + "\n".join(findings)


def test_the_walker_sees_the_house():
    assert "errors.py" in FILES
    assert len(FILES) > 10


FUTURE = "from __future__ import annotations\n"


@pytest.mark.parametrize(
    ("path", "code", "sentence"),
    [
        ("helpers/misc.py", "X = 1", "'helpers' stands on no floor"),
        ("wire/frame.py", "from .reader import Reader", "imports are absolute"),
        ("wire/frame.py", "from .. import errors", "imports are absolute"),
        ("errors.py", "from aiops.types import Key", "rooms on one floor"),
        ("types.py", "import aiops.errors", "rooms on one floor"),
        ("kernels/reference/dense.py", "from aiops.wire.frame import Frame", "imports point down"),
        ("wire/frame.py", "from aiops.codec.base import Codec", "rooms on one floor"),
        ("codec/topk.py", "from aiops import wire", "rooms on one floor"),
        ("codec/topk.py", "import aiops.wire.frame", "rooms on one floor"),
        ("server/service.py", "from aiops.worker.client import Client", "rooms on one floor"),
        (
            "worker/client.py",
            "def f():\n    from aiops.server import service",
            "rooms on one floor",
        ),
        ("server/service.py", "from aiops.api import serve", "imports point down"),
        ("worker/client.py", "from aiops import connect", "the face re-exports the rooms"),
        ("worker/client.py", "import aiops", "the face re-exports the rooms"),
        ("api.py", "from aiops.sim.loop import VirtualLoop", "imports point down"),
        ("api.py", "import importlib\nimportlib.import_module('aiops.cli')", "imports point down"),
        ("__init__.py", "from aiops.torch import attach", "the face imports floors 0 to 5"),
        ("__init__.py", "import torch", "only torch.py"),
        ("transport/tcp.py", "from aiops.policy.base import Rate", "transport moves bytes"),
        ("transport/tcp.py", "from aiops.codec import base", "transport moves bytes"),
        ("server/engine.py", "from aiops.policy.sync import BulkSync", "aiops.policy.base only"),
        ("server/engine.py", "from aiops.policy import BulkSync", "aiops.policy.base only"),
        (
            "collective/control.py",
            "from aiops.policy.density import Fixed",
            "aiops.policy.base only",
        ),
        ("server/store.py", "from aiops.merge.krum import Krum", "aiops.merge.base only"),
        ("server/store.py", "from aiops.merge import base, table", "aiops.merge.base only"),
        ("merge/krum.py", "from aiops.codec.base import Codec", "rooms on one floor"),
        ("worker/client.py", "import aiops.codec.topk", "aiops.codec.base only"),
        ("worker/client.py", "from aiops.codec import topk", "aiops.codec.base only"),
        ("worker/client.py", "from aiops.codec.baseline import X", "aiops.codec.base only"),
        *(
            (f"{room}/a.py", f"import {module}", f"{room} is sans-IO: no {module}")
            for room in ("kernels", "policy", "buffers", "wire", "codec", "merge")
            for module in (
                "asyncio",
                "socket",
                "ssl",
                "selectors",
                "time",
                "random",
                "threading",
                "uvloop",
            )
        ),
        ("buffers.py", "from time import monotonic", "buffers is sans-IO: no time"),
        ("config.py", "import asyncio", "config is read before any loop runs"),
        ("server/engine.py", "import asyncio", "the engine turns events into actions"),
        ("server/engine.py", "async def f(): ...", "nothing in it is async"),
        ("server/advice.py", "async def f(): ...", "nothing in it is async"),
        ("server/service.py", "import torch.distributed", "only torch.py"),
        ("cli/serve.py", "from torch import nn", "only torch.py"),
        ("api.py", "import os\nX = os.environ['A']", "environment variables"),
        ("data/fashion.py", "from os import getenv", "environment variables"),
        (
            "kernels/reference/dense.py",
            "import os\nos.getenv('AIOPS_PURE')",
            "environment variables",
        ),
        ("worker/bucket.py", "import asyncio\nasyncio.create_task(f())", "every task has an owner"),
        ("worker/bucket.py", "from asyncio import create_task", "every task has an owner"),
        (
            "worker/bucket.py",
            "import asyncio\nasyncio.ensure_future(f())",
            "every task has an owner",
        ),
        ("worker/bucket.py", "self._loop.create_task(f())", "every task has an owner"),
        (
            "worker/bucket.py",
            "import asyncio\nasyncio.get_running_loop().create_task(f())",
            "every task has an owner",
        ),
        ("wire/message.py", "import pickle", "never code: no pickle"),
        ("server/journal.py", "from marshal import loads", "never code: no marshal"),
        ("config.py", "eval('1')", "never code: no eval()"),
        ("config.py", "exec('x = 1')", "never code: no exec()"),
        ("server/journal.py", "np.load(path, allow_pickle=True)", "no allow_pickle=True"),
        ("torch.py", "torch.load(path, weights_only=False)", "no weights_only=False"),
        ("worker/client.py", "import threading", "one writer per shard"),
        ("server/service.py", "import asyncio\nlock = asyncio.Lock()", "no locks in the package"),
        ("server/service.py", "from asyncio import Semaphore", "no locks in the package"),
    ],
)
def test_a_planted_violation_is_found(path, code, sentence):
    findings = broken(path, FUTURE + code)
    assert any(sentence in finding for finding in findings), findings


def test_a_module_without_the_future_import_is_found():
    assert broken("wire/frame.py", '"""Frames."""\nX = 1') == [
        "wire/frame.py:2: a module with code starts with `from __future__ import annotations`"
    ]
    contents = '"""Bytes."""\nfrom aiops.wire.frame import Frame\n__all__ = ["Frame"]'
    assert broken("wire/__init__.py", contents) == []


def test_a_finding_names_file_line_and_rule():
    assert broken("wire/frame.py", FUTURE + "\n\nimport time") == [
        "wire/frame.py:4: wire is sans-IO: no time, time and randomness come in as arguments"
    ]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("errors.py", "import enum"),
        ("trace.py", "import time"),
        ("wire/frame.py", "from aiops.wire.reader import Reader\nfrom aiops.errors import X"),
        ("codec/topk.py", "from aiops.kernels import top_k"),
        ("codec/topk.py", "from aiops.codec.timer import time"),
        ("transport/tcp.py", "import asyncio, ssl\nfrom aiops.wire.frame import Frame"),
        ("server/engine.py", "from aiops.policy.base import SyncPolicy"),
        ("server/engine.py", "from aiops.policy import base"),
        ("server/store.py", "from aiops.merge.base import Rules"),
        ("collective/control.py", "from aiops.policy.exchange import Judge"),
        ("stream/batch.py", "from aiops.policy.stream import BatchRule"),
        ("merge/combination.py", "from aiops.policy.weight import Uniform"),
        ("worker/overlap.py", "import asyncio\nasync def f(group):\n    group.create_task(g())"),
        ("worker/client.py", "def f():\n    evaluate()\n    self.eval()"),
        ("api.py", "from aiops.server.service import Service\nfrom aiops.worker.client import C"),
        ("sim/cluster.py", "import aiops\nfrom aiops import serve\nfrom aiops.data import load"),
        ("cli/__init__.py", "import os\nfrom aiops.launch import local\nos.environ['A']"),
        ("cli/demo.py", "import torch"),
        ("launch/demo_wan.py", "import torch"),
        ("collective/artopk.py", "import torch"),
        ("bench/peers/gloo.py", "import torch\nimport os\nos.environ['GLOO_SOCKET_IFNAME'] = 'lo'"),
        ("bench/fleet.py", "from aiops.launch.process import Child\nimport time, signal"),
        ("sync/thread.py", "import threading"),
        ("torch.py", "import threading\nimport torch\nfrom aiops.sync import Client"),
        ("kernels/_backend.py", "import os\nos.environ.get('AIOPS_PURE')"),
        ("__init__.py", "from aiops.api import serve\nfrom aiops.data import load"),
        ("__init__.py", "def __getattr__(name):\n    from aiops import torch"),
        ("__init__.py", "if TYPE_CHECKING:\n    from aiops import torch"),
        ("server/service.py", "import asyncio\nready = asyncio.Event()"),
        ("server/service.py", "from concurrent.futures import ThreadPoolExecutor"),
        ("transport/stream.py", "import asyncio\nturn = asyncio.Lock()"),
    ],
)
def test_what_the_rules_allow_is_let_through(path, code):
    assert broken(path, FUTURE + code) == []


@pytest.mark.parametrize(
    ("rule", "excuses"),
    [
        pytest.param(every_task_has_an_owner, MAY_SPAWN_TASKS, id="tasks"),
        pytest.param(one_writer_needs_no_lock, MAY_LOCK, id="locks"),
    ],
)
def test_an_excuse_is_given_only_where_it_is_used(monkeypatch, rule, excuses):
    monkeypatch.setattr(Source, "is_in", lambda self, places: False)
    for path in excuses:
        source = parse(path, (ROOT / path).read_text(encoding="utf-8"))
        assert any(rule(source)), f"{path} does not need its excuse: take it out of the table"
