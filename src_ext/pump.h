/* Bytes between descriptors and memory, several jobs in turn, without the interpreter: poll, recv and send. */

#ifndef AIOPS_PUMP_H
#define AIOPS_PUMP_H

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

#ifndef MSG_NOSIGNAL /* macOS has none: Python ignores SIGPIPE */
#define MSG_NOSIGNAL 0
#endif

/* aiops.wire.reader says why, and which calls are long enough to be worth it. */
#define AIOPS_PUMP_ALIGN 64
#define AIOPS_PUMP_LONG (32 * 1024)

/* What a job's error is when its peer has closed. */
#define AIOPS_PUMP_EOF (-1)

typedef struct {
    char *at;        /* where the next bytes go or come from */
    ptrdiff_t left;  /* how many of them; 0: the owner moves bytes himself and wants to know when he can */
    ptrdiff_t moved; /* how many have been moved since he was last told */
    int fd;
    int sends;
    int ready; /* whether the next call may find something without asking poll first */
    int error; /* errno, or AIOPS_PUMP_EOF; it goes no further with one */
} aiops_pump_job;

static double aiops_pump_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One call for one job; returns whether its owner has to be told of something. */
static int aiops_pump_step(aiops_pump_job *job, ptrdiff_t most)
{
    ptrdiff_t wanted = job->left < most ? job->left : most, n;
    if (job->left == 0) {
        job->ready = 0;
        return 1;
    }
    /* A short call to an aligned address first: from some others the kernel copies at a quarter of the speed. */
    if (!job->sends && wanted >= AIOPS_PUMP_LONG && ((uintptr_t)job->at & (AIOPS_PUMP_ALIGN - 1)))
        wanted = AIOPS_PUMP_ALIGN - (ptrdiff_t)((uintptr_t)job->at & (AIOPS_PUMP_ALIGN - 1));
    n = job->sends ? send(job->fd, job->at, (size_t)wanted, MSG_NOSIGNAL)
                   : recv(job->fd, job->at, (size_t)wanted, 0);
    if (n > 0) {
        job->at += n;
        job->left -= n;
        job->moved += n;
        /* Less than was wanted: there is no more at present, and trying would cost a call that says so. */
        job->ready = n == wanted;
        return job->left == 0;
    }
    if (n < 0 && errno == EINTR)
        return 0;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        job->ready = 0;
        return 0;
    }
    job->error = n < 0 ? errno : AIOPS_PUMP_EOF;
    return 1;
}

/* Ask which jobs can go on; polled has room for one more, which is watched for news from other threads. Returns whether
   there was such news. */
static int aiops_pump_poll(
    aiops_pump_job *jobs, struct pollfd *polled, int count, int woken, int timeout_ms)
{
    char news[64];
    int i;
    for (i = 0; i < count; i++) {
        polled[i].fd = jobs[i].ready ? -1 : jobs[i].fd;
        polled[i].events = jobs[i].sends ? POLLOUT : POLLIN;
        polled[i].revents = 0;
    }
    polled[count].fd = woken;
    polled[count].events = POLLIN;
    polled[count].revents = 0;
    if (poll(polled, (nfds_t)count + 1, timeout_ms) <= 0)
        return 0;
    for (i = 0; i < count; i++)
        if (polled[i].revents)
            jobs[i].ready = 1;
    if (!polled[count].revents)
        return 0;
    return recv(woken, news, sizeof news, MSG_DONTWAIT) != 0;
}

/* Let the jobs take turns of one call of at most `most` bytes, beginning with *turn, until the owner of one has to be
   told of something, `halted` is set, there is news, or bytes have moved and stay_s is over. Returns that job, or -1. */
static int aiops_pump_run(
    aiops_pump_job *jobs, struct pollfd *polled, int count, int woken, int *turn, const int *halted,
    ptrdiff_t most, double stay_s)
{
    double end = 0, left_s;
    int done, i, n_ready, timeout_ms, some = 0;
    for (;;) {
        n_ready = 0;
        for (done = 0; done < count; done++) {
            if (__atomic_load_n(halted, __ATOMIC_ACQUIRE))
                return -1;
            i = *turn < count ? *turn : 0;
            *turn = i + 1;
            if (!jobs[i].ready)
                continue;
            if (aiops_pump_step(&jobs[i], most))
                return i;
            some |= jobs[i].moved > 0;
            n_ready += jobs[i].ready;
        }
        if (__atomic_load_n(halted, __ATOMIC_ACQUIRE))
            return -1;
        timeout_ms = n_ready ? 0 : -1;
        if (some) {
            /* The time spent waiting for the first bytes does not count. */
            if (end == 0)
                end = aiops_pump_now() + stay_s;
            left_s = end - aiops_pump_now();
            if (left_s <= 0)
                return -1;
            if (!n_ready)
                timeout_ms = (int)(1e3 * left_s) + 1;
        }
        if ((n_ready < count || count == 0)
            && aiops_pump_poll(jobs, polled, count, woken, timeout_ms))
            return -1;
    }
}

#endif
