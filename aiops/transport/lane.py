"""Lanes: threads that move bulk bytes between sockets and memory while the loop answers everybody else.

A loop that copies 100 MB through a socket answers nobody for as long as that takes: the round trip of a small message
beside it went from 50 us to 400-700 us (2 cores, uvloop). A lane knows sockets and memory, no frame and no connection.
Its pump moves the bytes; the lane hears when a landing's room is full or a move has ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from aiops.transport.pump import END, Pump, Selectable
from aiops.wire.reader import NOTHING, Landing

# One call moves at most this much: long enough to be worth it, short enough to take turns. With four workers on two
# cores, 512 KiB took 1.08 of the CPU time, 256 KiB 1.13, 4 MiB 1.04.
CALL_BYTES = 1024 * 1024

# How much a landing is asked for at a time, and how long bytes move before a move's ``left`` says so: some round trips
# to the interpreter for 100 MB, and news for whoever watches over idle connections.
ROOM_BYTES = 8 * 1024 * 1024
STAY_S = 0.05

Done = Callable[["Exception | None"], None]
"""Told on the lane, once, when a move is over; ``None`` when all its bytes are moved."""


class Move(Protocol):
    """One payload on its way.

    Attributes:
        sock: Something non-blocking that nobody else closes before the move is over; the lane closes it then.
        sends: Whether the lane watches it for room, instead of for bytes.
        left: Bytes that are not moved yet.
        over: Whether the lane touches it no more.
        done: Whom to tell.
    """

    sends: bool
    left: int
    over: bool
    done: Done

    @property
    def sock(self) -> Selectable:
        """See above."""

    def room(self) -> memoryview:
        """Return where the next bytes go or come from; empty if the move carries them itself."""

    def moved(self, n: int) -> bool:
        """Take note of ``n`` bytes; a move that carries them itself does so, and returns whether there may be more."""


class Receive:
    """Bytes from a socket into a landing."""

    sends = False

    def __init__(self, sock: socket.socket, landing: Landing, size: int, done: Done) -> None:
        self.sock = sock
        self.left = size
        self.over = False
        self.done = done
        self._landing = landing

    def room(self) -> memoryview:
        """Return the landing's room, for what is due."""
        return self._landing.room(ROOM_BYTES)[: self.left]

    def moved(self, n: int) -> bool:
        """Tell the landing."""
        self._landing.filled(n)
        self.left -= n
        return True


class Send:
    """Bytes from memory into a socket; the memory is on loan until the move is over."""

    sends = True

    def __init__(self, sock: socket.socket, view: memoryview, done: Done) -> None:
        self.sock = sock
        self.left = len(view)
        self.over = False
        self.done = done
        self._view = view

    def room(self) -> memoryview:
        """Return what is not sent yet."""
        return self._view[len(self._view) - self.left :]

    def moved(self, n: int) -> bool:
        """Count."""
        self.left -= n
        return True


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
        self._moving: dict[int, Move] = {}
        self._closing = False
        # Whether the thread has ended by itself.
        self._failed = False
        # Held while the lane may touch the memory of a move.
        self._step = threading.Lock()
        # Cleared while somebody waits for the lock, which a busy lane would take again before them.
        self._free = threading.Event()
        self._free.set()
        self._pump: Pump
        self._woken: socket.socket
        self._waker: socket.socket

    def start(self, move: Move) -> None:
        """Take a move on.

        Raises:
            OSError: The system has no descriptors or no thread for the lane; the move is over, and nobody else is told.
        """
        self._coming.append(move)
        if self._failed:
            # Once its thread is gone, what it has told nobody of is still here.
            self.close()
        if self._thread is not None:
            self._wake()
        elif self._coming:
            self._begin()

    def stop(self, move: Move) -> bool:
        """End a move: once this returns the lane does not touch its memory any more, and tells nobody.

        Returns:
            Whether the move was still under way; if not, somebody was told.
        """
        with self.quiet():
            under_way = not move.over
            move.over = True
            if under_way and self._moving.get(move.sock.fileno()) is move:
                self._forget(move)
        return under_way

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep the lane from moving anything meanwhile; waits for the call that it is in, well under a millisecond."""
        # A KeyboardInterrupt may come anywhere in here; `with` leaves no moment at which the lock is held for good.
        try:
            self._free.clear()
            if self._step.locked():
                self._wake()
            with self._step:
                yield
        finally:
            self._free.set()

    def close(self) -> None:
        """End the thread; there are no moves left, or they are given up."""
        self._closing = True
        if self._thread is not None:
            self._wake()
            self._thread.join()
            self._thread = None
            self._woken.close()
            self._waker.close()

    # Start the thread, or be as before.
    def _begin(self) -> None:
        try:
            self._woken, self._waker = socket.socketpair()
            self._waker.setblocking(False)
            self._pump = Pump(self._woken, most_bytes=CALL_BYTES, stay_s=STAY_S)
            self._closing = self._failed = False
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there can be no more threads
                self._woken.close()
                self._waker.close()
                raise OSError(errno.EAGAIN, str(error)) from None
        except OSError:
            move = self._coming.pop()
            move.over = True
            move.sock.close()
            raise
        self._thread = thread

    # Have the lane look at what has changed.
    def _wake(self) -> None:
        self._pump.halt()
        with contextlib.suppress(BlockingIOError):  # there is more news than it has heard yet
            self._waker.send(b"\0")

    def _run(self) -> None:
        try:
            while not self._closing:
                if not self._moving and not self._coming:
                    # Without the lock: nobody has to wake a lane that does nothing.
                    self._woken.recv(4096)
                self._free.wait()
                with self._step:
                    self._serve()
        except Exception as error:
            self._fail(error)
        # The next thread has a pump of its own, which knows none of them.
        self._forget_all()

    # No move is to blame, as when the system is short of descriptors: all are told, and the next has another thread.
    def _fail(self, error: Exception) -> None:
        with self._step:
            # Before the last look at what is coming: who comes later than that sees it.
            self._failed = True
            told = self._forget_all()
            for move in told:
                if not move.over:
                    move.over = True
                    move.done(error)
        if not told:
            raise error

    # A method of its own, so that no name of it holds on to a move while the lane waits for the next.
    def _serve(self) -> None:
        # What others ask for from here on halts the pump; what they asked for before is looked at here.
        self._pump.resume()
        while self._coming:
            # It stays until the pump has it, so that one that cannot be taken on is not forgotten.
            self._take_on(self._coming[0])
            self._coming.popleft()
        if self._moving and self._free.is_set() and not self._closing:
            for fd, n, error in self._pump.run():
                self._went(self._moving[fd], fd, n, error)

    def _take_on(self, move: Move) -> None:
        if move.over:
            move.sock.close()
            return
        fd = self._pump.begin(move.sock, sends=move.sends)
        self._moving[fd] = move
        try:
            self._pump.offer(fd, move.room())
        except Exception as error:
            self._end(move, error)

    # A part of a move, and how it ended if it was the last one.
    def _went(self, move: Move, fd: int, n: int, error: int) -> None:
        try:
            more = move.moved(n) if n or not error else False
            if error:
                raise EOFError if error == END else OSError(error, os.strerror(error))
            room = move.room() if move.left else NOTHING
        except Exception as failure:
            self._end(move, failure)
            return
        if not move.left:
            self._end(move, None)
        elif room:
            self._pump.offer(fd, room)
        elif more:
            self._pump.again(fd)

    def _end(self, move: Move, error: Exception | None) -> None:
        move.over = True
        self._forget(move)
        move.done(error)

    # Returns whom nobody will move any more.
    def _forget_all(self) -> list[Move]:
        moves = list(self._moving.values())
        for move in moves:
            self._forget(move)
        while self._coming:
            moves.append(self._coming.popleft())
            moves[-1].sock.close()
        return moves

    def _forget(self, move: Move) -> None:
        fd = move.sock.fileno()
        self._pump.end(fd)
        del self._moving[fd]
        move.sock.close()
