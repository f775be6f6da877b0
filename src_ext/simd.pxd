# The C side of the kernels that several modules use; see simd.h for what each function promises.

from libc.stdint cimport uint16_t, uint32_t

cdef extern from "simd.h" nogil:
    int aiops_simd_level() noexcept
    bint aiops_exceeds_caches(Py_ssize_t n, Py_ssize_t value_bytes) noexcept
    void aiops_prefetch_write(const void* address) noexcept
    Py_ssize_t aiops_first_nonfinite(const float* x, Py_ssize_t n) noexcept
    Py_ssize_t aiops_first_nonfinite_half(
        const uint16_t* bits, uint16_t infinity, Py_ssize_t n,
    ) noexcept
    Py_ssize_t aiops_first_outside(const uint32_t* index, Py_ssize_t k, Py_ssize_t n) noexcept
