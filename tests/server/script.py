"""The engine as a table: what happens on the left, what it wants done on the right."""

import pytest

from aiops.errors import NotFinite
from aiops.policy.weight import uniform
from aiops.policy.work import fixed
from aiops.server.engine import Engine
from aiops.server.event import (
    Answer,
    Decline,
    Drop,
    Handle,
    Joined,
    Left,
    Merge,
    Merged,
    MergeFailed,
    Pushed,
)


class Name(Handle):
    def __init__(self, name):
        self.name = name


def join(worker):
    return Joined(worker)


def leave(worker):
    return Left(worker)


def push(name, *, base=0, n_samples=1, n_steps=1, **times):
    """A push called "0b" is one of worker 0."""
    return Pushed(
        int(name[0]), Name(name), base=base, n_samples=n_samples, n_steps=n_steps, **times
    )


MERGED = Merged()
FAILED = MergeFailed(NotFinite("too large"))


def said(action):
    match action:
        case Merge(handles, weights):
            parts = zip(handles, weights, strict=True)
            return "merge " + " ".join(f"{handle.name}*{weight:g}" for handle, weight in parts)
        case Answer(handle, _, version, staleness, n_merged):
            return f"answer {handle.name} v{version} late {staleness} of {n_merged}"
        case Decline(handle, error):
            return f"decline {handle.name} {type(error).__name__}"
        case Drop(handle, error):
            return f"drop {handle.name} {type(error).__name__}"


def play(engine, script):
    for step, (event, expected) in enumerate(script):
        actions = [said(action) for action in engine.handle(event, float(step))]
        assert actions == expected, f"step {step}: {event}"


def engine(sync, **options):
    return Engine(sync, options.pop("weights", uniform()), fixed(1), **options)


def table(*cases):
    return pytest.mark.parametrize(
        ("start", "script"),
        [pytest.param(options, script, id=name) for name, options, script in cases],
    )


PAIR = [(join(0), []), (join(1), [])]


def rounds(n, *, base=0):
    """Worker 0 closes ``n`` rounds alone."""
    return [
        step
        for version in range(base, base + n)
        for step in (
            (push("0r", base=version), ["merge 0r*1"]),
            (MERGED, [f"answer 0r v{version + 1} late 0 of 1"]),
        )
    ]
