"""Bytes between sockets and memory, several moves in turn, without the interpreter.

The twin is ``aiops.transport.pump.PurePump``, which says what each method does.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        pass

cdef extern from "pump.h" nogil:
    ctypedef struct aiops_pump_job:
        char* at
        Py_ssize_t left
        Py_ssize_t moved
        int fd
        int sends
        int ready
        int error

    int aiops_pump_run(
        aiops_pump_job* jobs, pollfd* polled, int count, int woken, int* turn, const int* halted,
        Py_ssize_t most, double stay_s,
    ) noexcept

cdef extern from *:
    """
    #define aiops_pump_set(flag, value) __atomic_store_n(&(flag), (value), __ATOMIC_RELEASE)
    """
    void aiops_pump_set(int flag, int value) noexcept nogil


cdef class Pump:
    """See ``aiops.transport.pump.PurePump``."""

    cdef aiops_pump_job* _jobs
    cdef Py_buffer* _memory
    cdef pollfd* _polled
    cdef int _count, _room, _woken, _turn, _halted
    cdef Py_ssize_t _most
    cdef double _stay_s

    def __cinit__(self, woken, *, Py_ssize_t most_bytes, double stay_s):
        self._woken = woken.fileno()
        self._most = most_bytes
        self._stay_s = stay_s
        self._grow(8)

    def __dealloc__(self):
        cdef int i
        for i in range(self._count):
            PyBuffer_Release(&self._memory[i])
        free(self._jobs)
        free(self._memory)
        free(self._polled)

    def begin(self, sock, *, bint sends) -> int:
        if self._count == self._room:
            self._grow(2 * self._room)
        cdef aiops_pump_job* job = &self._jobs[self._count]
        job.at, job.left, job.moved = NULL, 0, 0
        job.fd, job.sends, job.ready, job.error = sock.fileno(), sends, True, 0
        memset(&self._memory[self._count], 0, sizeof(Py_buffer))
        self._count += 1
        return job.fd

    def offer(self, int fd, memory) -> None:
        cdef int i = self._find(fd)
        cdef aiops_pump_job* job = &self._jobs[i]
        PyBuffer_Release(&self._memory[i])
        job.at, job.left = NULL, 0
        if len(memory) > 0:
            PyObject_GetBuffer(
                memory, &self._memory[i], PyBUF_SIMPLE if job.sends else PyBUF_WRITABLE,
            )
            job.at, job.left = <char*>self._memory[i].buf, self._memory[i].len

    def again(self, int fd) -> None:
        self._jobs[self._find(fd)].ready = True

    def end(self, int fd) -> None:
        cdef int i = self._find(fd)
        PyBuffer_Release(&self._memory[i])
        self._count -= 1
        if i < self._count:
            self._jobs[i] = self._jobs[self._count]
            self._memory[i] = self._memory[self._count]

    def halt(self) -> None:
        aiops_pump_set(self._halted, True)

    def resume(self) -> None:
        aiops_pump_set(self._halted, False)

    def run(self) -> list:
        cdef int i
        with nogil:
            i = aiops_pump_run(
                self._jobs, self._polled, self._count, self._woken, &self._turn, &self._halted,
                self._most, self._stay_s,
            )
        if i >= 0:
            return [self._told(i)]
        return [self._told(i) for i in range(self._count) if self._jobs[i].moved > 0]

    cdef tuple _told(self, int i):
        cdef aiops_pump_job* job = &self._jobs[i]
        cdef Py_ssize_t moved = job.moved
        job.moved = 0
        return job.fd, moved, job.error

    cdef int _find(self, int fd) except -1:
        cdef int i
        for i in range(self._count):
            if self._jobs[i].fd == fd:
                return i
        raise KeyError(fd)

    cdef int _grow(self, int room) except -1:
        cdef void* jobs = realloc(self._jobs, room * sizeof(aiops_pump_job))
        if jobs == NULL:
            raise MemoryError
        self._jobs = <aiops_pump_job*>jobs
        cdef void* memory = realloc(self._memory, room * sizeof(Py_buffer))
        if memory == NULL:
            raise MemoryError
        self._memory = <Py_buffer*>memory
        cdef void* polled = realloc(self._polled, (room + 1) * sizeof(pollfd))
        if polled == NULL:
            raise MemoryError
        self._polled = <pollfd*>polled
        self._room = room
        return 0
