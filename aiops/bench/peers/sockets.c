/* What the kernel alone can do: blocking sockets, nothing in between, nothing summed.
 *
 * sockets serve SHAPE BYTES WORKERS CONGESTION        prints host:port
 * sockets work  SHAPE BYTES ADDRESS CONGESTION        prints "ready", then one line of JSON per line "COUNT" read
 *
 * SHAPE is round (BYTES up, BYTES down: two one-way transfers), one-way (BYTES up, one byte down) or epoll (round,
 * with one event loop on the server instead of a thread a worker). CONGESTION is a name, or - for the system's own.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#endif

/* What one receive call may take: stays in the second-level cache, 1.2 times as fast as one call for 100 MB. */
enum { CHUNK = 256 * 1024, MOST_EVENTS = 64 };

static const char *shape, *congestion;
static size_t n_bytes;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static char *memory(size_t size) {
    char *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) fail("mmap");
#ifdef MADV_HUGEPAGE
    madvise(block, size, MADV_HUGEPAGE);
#endif
    return memset(block, 1, size);
}

static void set_up(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
#ifdef TCP_CONGESTION
    if (strcmp(congestion, "-") != 0 &&
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, strlen(congestion)) != 0)
        fail(congestion);
#endif
}

static int send_all(int fd, const char *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = send(fd, data + done, size - done, MSG_NOSIGNAL);
        if (n <= 0) return 0;
        done += (size_t)n;
    }
    return 1;
}

static int receive_all(int fd, char *data, size_t size) {
    for (size_t done = 0; done < size;) {
        size_t want = size - done < CHUNK ? size - done : CHUNK;
        ssize_t n = recv(fd, data + done, want, 0);
        if (n <= 0) return 0;
        done += (size_t)n;
    }
    return 1;
}

static size_t answer_bytes(void) { return strcmp(shape, "one-way") == 0 ? 1 : n_bytes; }

static void *serve_one(void *argument) {
    int fd = (int)(long)argument;
    char *data = memory(n_bytes);
    while (receive_all(fd, data, n_bytes) && send_all(fd, data, answer_bytes())) continue;
    close(fd);
    return NULL;
}

#ifdef __linux__
static void serve_by_events(const int *fds, int count) {
    struct { int fd; char *data; size_t got; } *peers = calloc((size_t)count, sizeof *peers);
    int poll = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        peers[i].fd = fds[i];
        peers[i].data = memory(n_bytes);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(poll, EPOLL_CTL_ADD, fds[i], &event);
    }
    for (;;) {
        struct epoll_event events[MOST_EVENTS];
        int ready = epoll_wait(poll, events, MOST_EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            uint32_t p = events[i].data.u32;
            ssize_t n = recv(peers[p].fd, peers[p].data + peers[p].got, n_bytes - peers[p].got, 0);
            if (n <= 0) exit(0);
            peers[p].got += (size_t)n;
            if (peers[p].got == n_bytes) {
                peers[p].got = 0;
                if (!send_all(peers[p].fd, peers[p].data, n_bytes)) exit(0);
            }
        }
    }
}
#endif

static void serve(int workers) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    set_up(listener);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, workers) != 0) fail("bind");
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int *fds = calloc((size_t)workers, sizeof *fds);
    pthread_t *threads = calloc((size_t)workers, sizeof *threads);
    for (int i = 0; i < workers; i++) {
        if ((fds[i] = accept(listener, NULL, NULL)) < 0) fail("accept");
        set_up(fds[i]);
    }
#ifdef __linux__
    if (strcmp(shape, "epoll") == 0) serve_by_events(fds, workers);
#endif
    for (int i = 0; i < workers; i++) pthread_create(&threads[i], NULL, serve_one, (void *)(long)fds[i]);
    for (int i = 0; i < workers; i++) pthread_join(threads[i], NULL);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void work(const char *where) {
    const char *colon = strrchr(where, ':');
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)atoi(colon + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0), count;
    set_up(fd);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
    char *up = memory(n_bytes), *down = memory(n_bytes);
    printf("\"ready\"\n");
    fflush(stdout);
    while (scanf("%d", &count) == 1) {
        double *times = malloc(sizeof *times * (size_t)count);
        double first = now(), start = first, end = first;
        for (int i = 0; i < count; i++, start = end) {
            if (!send_all(fd, up, n_bytes) || !receive_all(fd, down, answer_bytes())) fail("round");
            end = now();
            times[i] = end - start;
        }
        qsort(times, (size_t)count, sizeof *times, by_size);
        printf("{\"median_s\": %.9f, \"best_s\": %.9f, ", times[count / 2], times[0]);
        printf("\"start_s\": %.9f, \"end_s\": %.9f}\n", first, end);
        fflush(stdout);
        free(times);
    }
}

int main(int count, char **arguments) {
    if (count != 6) return 2;
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever measures may be killed; then nobody reads this any more */
#endif
    shape = arguments[2];
    n_bytes = strtoull(arguments[3], NULL, 10);
    congestion = arguments[5];
    if (strcmp(arguments[1], "serve") == 0) serve(atoi(arguments[4]));
    else work(arguments[4]);
    return 0;
}
