# The C side of top-k; see select.h, topk.h and rank.h for what each function promises.

from libc.stdint cimport uint32_t

cdef extern from "select.h" nogil:
    enum:
        AIOPS_SMALLEST_PAST
        AIOPS_SMALLEST_SAMPLED
    const uint32_t AIOPS_INFINITY_BITS, AIOPS_NEVER
    ctypedef struct Aim "aiops_aim":
        uint32_t low, sure
        bint rare
    ctypedef struct Cut "aiops_cut":
        uint32_t sure
        Py_ssize_t ties
    ctypedef struct Scan "aiops_scan":
        const float* x
        Py_ssize_t n, at
        uint32_t low, least
        uint32_t* index
        float* value
        Py_ssize_t some, room
        bint rare
    ctypedef struct Step "aiops_feedback":
        const float* update
        float* out
        uint32_t sure
    int aiops_topk_level(int level) noexcept
    bint aiops_has_room(Py_ssize_t n, Py_ssize_t k) noexcept
    Py_ssize_t aiops_room(Py_ssize_t n, Py_ssize_t k) noexcept
    Py_ssize_t aiops_key_room(Py_ssize_t n, Py_ssize_t room) noexcept
    void* aiops_scratch(Py_ssize_t size) noexcept
    Aim aiops_aim_at(
        int level, const float* x, const float* update, Py_ssize_t n, Py_ssize_t k, int attempt,
        uint32_t* key,
    ) noexcept
    void aiops_collect(int level, Scan* scan) noexcept
    void aiops_feed(int level, Scan* scan, Step* step) noexcept
    Cut aiops_finish(
        int level, const float* x, const uint32_t* names, Py_ssize_t m, Py_ssize_t k,
        uint32_t low, uint32_t sure, uint32_t* key, uint32_t* index, float* value,
    ) noexcept
    Cut aiops_cut_of_all(
        int level, const float* x, Py_ssize_t n, Py_ssize_t k, uint32_t* key,
        Py_ssize_t room, Py_ssize_t* bad,
    ) noexcept
    void aiops_take(
        int level, const float* x, const uint32_t* names, Py_ssize_t m, Cut cut,
        uint32_t* index, float* value, Py_ssize_t k,
    ) noexcept
    void aiops_zero(
        int level, float* out, const uint32_t* index, const float* value, Py_ssize_t k,
        uint32_t sure,
    ) noexcept
    void aiops_restore(
        float* out, const uint32_t* index, const float* value, Py_ssize_t some,
    ) noexcept
    double aiops_energy(const Step* step) noexcept
    double aiops_energy_of(const float* x, Py_ssize_t n) noexcept
