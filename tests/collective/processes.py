"""Runs a function on every rank of a real Gloo job, each in a process of its own."""

import multiprocessing
import queue
import time
import traceback

# A process forked from one that has torch loaded starts in a tenth of the time.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch.distributed", "aiops.collective.state"])

LIMIT_S = 120.0


class Killed:
    """What a rank returned that did not live to return anything."""


def run(function, ranks, path, *arguments, killed=()):
    """Return what ``function(rank, ranks, *arguments)`` returns on each rank.

    Args:
        function: A module's own, so that a process can find it.
        ranks: How many.
        path: An empty directory; the job's store lies in it.
        arguments: What can be sent to a process.
        killed: The ranks that do not end by themselves.
    """
    results = _CONTEXT.Queue()
    children = [
        _CONTEXT.Process(
            target=_enter, args=(function, rank, ranks, str(path / "store"), results, arguments)
        )
        for rank in range(ranks)
    ]
    for child in children:
        child.start()
    try:
        return _collect(results, children, killed)
    finally:
        for child in children:
            child.kill()
            child.join()


def _collect(results, children, killed):
    found = dict.fromkeys(killed, Killed)
    until = time.monotonic() + LIMIT_S
    while len(found) < len(children):
        try:
            rank, result, error = results.get(timeout=max(until - time.monotonic(), 0.01))
        except queue.Empty:
            late = sorted(set(range(len(children))) - set(found))
            raise AssertionError(f"ranks {late} did not end within {LIMIT_S:g} s") from None
        assert error is None, f"rank {rank}: {error}"
        found[rank] = result
    return [found[rank] for rank in range(len(children))]


def _enter(function, rank, ranks, store, results, arguments):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
        results.put((rank, function(rank, ranks, *arguments), None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
