# The C side of the dense kernels; see dense.h for the formulas.

cdef extern from "dense.h" nogil:
    ctypedef struct aiops_add_job:
        const float* base
        const float* x
        float weight
        float* out
    ctypedef struct aiops_lerp_job:
        float* out
        const float* y
        float a
    ctypedef struct aiops_copy_job:
        const float* x
        float* out
    ctypedef struct aiops_merge_job:
        const float** source
        const float* weight
        Py_ssize_t count
        const float* base
        float gain
        float* out
    ctypedef struct aiops_swap_job:
        float* x
        float* base
        const float* fresh
        float* out
    ctypedef struct aiops_momentum_job:
        const float* params
        const float* update
        float* velocity
        float* out
        float rate
        float beta
        bint nesterov
    Py_ssize_t aiops_add(int level, const aiops_add_job* job, Py_ssize_t n, bint bypass) noexcept
    Py_ssize_t aiops_lerp(int level, const aiops_lerp_job* job, Py_ssize_t n, bint bypass) noexcept
    Py_ssize_t aiops_copy(int level, const aiops_copy_job* job, Py_ssize_t n, bint bypass) noexcept
    Py_ssize_t aiops_merge(
        int level, const aiops_merge_job* job, Py_ssize_t n, bint bypass,
    ) noexcept
    Py_ssize_t aiops_swap(int level, const aiops_swap_job* job, Py_ssize_t n, bint bypass) noexcept
    Py_ssize_t aiops_momentum(
        int level, const aiops_momentum_job* job, Py_ssize_t n, bint bypass,
    ) noexcept
