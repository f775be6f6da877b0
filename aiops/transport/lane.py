"""Lanes: threads that move bulk bytes between sockets and memory while the loop answers everybody else.

A loop that copies 100 MB through a socket answers nobody for as long as that takes: the round trip of a small message
beside it went from 50 us to 400-700 us (2 cores, uvloop). A lane knows sockets and memory, no frame and no connection.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from aiops.wire.reader import Landing

# One send call takes at most this much: long enough to be worth its system call, short enough to take turns.
SEND_BYTES = 1024 * 1024

# Calls on one socket before the others are looked at.
TURN = 8

Done = Callable[["Exception | None"], None]
"""Told on the lane, once, when a move is over; ``None`` when all its bytes are moved."""


class Selectable(Protocol):
    """What a selector can watch: a socket, or anything else with a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def close(self) -> None:
        """Close it."""


class Move(Protocol):
    """One payload on its way.

    Attributes:
        sock: Something non-blocking that belongs to this move alone; the lane closes it.
        events: What the selector watches it for.
        left: Bytes that are not moved yet.
        over: Whether the lane touches it no more.
        done: Whom to tell.
    """

    events: int
    left: int
    over: bool
    done: Done

    @property
    def sock(self) -> Selectable:
        """See above."""

    def step(self) -> bool:
        """Move what can be moved in one call; return whether there may be more at once."""


class Receive:
    """Bytes from a socket into a landing."""

    events = selectors.EVENT_READ

    def __init__(self, sock: socket.socket, landing: Landing, size: int, done: Done) -> None:
        self.sock = sock
        self.left = size
        self.over = False
        self.done = done
        self._landing = landing

    def step(self) -> bool:
        """Receive once; raises EOFError when the peer has closed."""
        room = self._landing.room()
        wanted = min(len(room), self.left)
        n = self.sock.recv_into(room, wanted)
        if not n:
            raise EOFError
        self._landing.filled(n)
        self.left -= n
        return n == wanted


class Send:
    """Bytes from memory into a socket; the memory is on loan until the move is over."""

    events = selectors.EVENT_WRITE

    def __init__(self, sock: socket.socket, view: memoryview, done: Done) -> None:
        self.sock = sock
        self.left = len(view)
        self.over = False
        self.done = done
        self._view = view

    def step(self) -> bool:
        """Send once."""
        at = len(self._view) - self.left
        wanted = min(SEND_BYTES, self.left)
        n = self.sock.send(self._view[at : at + wanted])
        self.left -= n
        return n == wanted


class Lane:
    """One thread and the moves it has taken on, each in turn; it starts with the first of them, after a close too.

    The methods belong to the thread that made it. What a move touches is touched by its lane alone, except inside
    :meth:`quiet`.

    Args:
        name: What the thread is called.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._coming: deque[Move] = deque()
        self._moving: set[Move] = set()
        # Moves that were not done when their turn was over: what the selector watches need not tell of them.
        self._eager: list[Move] = []
        self._closing = False
        self._step = threading.Lock()
        # Cleared while somebody waits for the lock, which a busy lane would take again before them.
        self._free = threading.Event()
        self._free.set()
        self._woken: socket.socket
        self._waker: socket.socket

    def start(self, move: Move) -> None:
        """Take a move on."""
        self._coming.append(move)
        if self._thread is None:
            self._closing = False
            self._woken, self._waker = socket.socketpair()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        else:
            self._waker.send(b"\0")

    def stop(self, move: Move) -> bool:
        """End a move: once this returns the lane does not touch its memory any more, and tells nobody.

        Returns:
            Whether the move was still under way; if not, somebody was told.
        """
        with self.quiet():
            under_way = not move.over
            move.over = True
        self._wake()
        return under_way

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep the lane from moving anything meanwhile; waits for the call that it is in, well under a millisecond."""
        self._free.clear()
        with self._step:
            try:
                yield
            finally:
                self._free.set()

    def close(self) -> None:
        """End the thread; there are no moves left, or they are given up."""
        self._closing = True
        self._wake()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._woken.close()
            self._waker.close()

    def _wake(self) -> None:
        if self._thread is not None:
            self._waker.send(b"\0")

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._closing:
                self._take_on(selector)
                self._serve(selector)
        for move in (*self._moving, *self._coming):
            move.sock.close()
        # The next thread has a selector of its own, which knows none of them.
        for moves in (self._moving, self._coming, self._eager):
            moves.clear()

    # A method of its own, so that no name of it holds on to a move while the lane waits for the next.
    def _serve(self, selector: selectors.BaseSelector) -> None:
        eager, self._eager = self._eager, []
        for key, _ in selector.select(0 if eager else None):
            if key.data is None:
                self._woken.recv(4096)
            elif key.data not in eager:
                self._turn(key.data)
        for move in eager:
            self._turn(move)

    # A move that comes with everything already there never meets the selector.
    def _take_on(self, selector: selectors.BaseSelector) -> None:
        for move in [move for move in self._moving if move.over]:
            selector.unregister(move.sock)
            move.sock.close()
            self._moving.discard(move)
        while self._coming:
            move = self._coming.popleft()
            self._turn(move)
            if move.over:
                move.sock.close()
            else:
                selector.register(move.sock, move.events, move)
                self._moving.add(move)

    def _turn(self, move: Move) -> None:
        for _ in range(TURN):
            if not self._free.is_set():
                self._free.wait()
            with self._step:
                if move.over:
                    return
                more = self._stepped(move)
            if not more:
                return
        self._eager.append(move)

    # One step, and how it ended if it was the last one.
    def _stepped(self, move: Move) -> bool:
        try:
            more = move.step()
        except (BlockingIOError, InterruptedError):
            return False
        except Exception as error:
            move.over = True
            move.done(error)
            return False
        if move.left:
            return more
        move.over = True
        move.done(None)
        return False
