/*
 * gearblast: a load generator for Gearman job servers on this machine.
 *
 * One thread, one epoll set, nothing but the C library.  It drives one workload against a server on 127.0.0.1,
 * follows every single job through its life, and prints one JSON object with what it saw.
 *
 *   background   clients submit background jobs, each keeping K submissions unanswered;
 *                latency: SUBMIT_JOB_BG sent -> JOB_CREATED read
 *   drain        the queue is filled first (not timed), then workers empty it, each keeping K grabs unanswered;
 *                latency: GRAB_JOB sent -> JOB_ASSIGN read
 *   foreground   clients submit foreground jobs, K unanswered each, and this program's own workers, which sleep
 *                and wake as the protocol demands, do them; latency: SUBMIT_JOB sent -> WORK_COMPLETE read
 *
 * The clock runs from the first request until the last answer was read and every connection has answered a final
 * echo, so that requests which have no answer of their own (WORK_COMPLETE) are paid for inside the timed part.
 *
 * Exit status: 0 every job was answered exactly once; 1 something was lost, doubled, refused or late (the JSON
 * object says what); 2 wrong usage, or no server there.
 *
 *   cc -O2 -Wall -Wextra -o build/gearblast gearblast.c && build/gearblast --help
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------ settings -- */

enum workload { BACKGROUND, DRAIN, FOREGROUND };
static const char *const workload_names[] = {"background", "drain", "foreground"};

#define MAX_PIDS 16
#define MAX_FUNCTION 64
#define FILLER_LINKS 16   /* connections that fill the queue before a drain ... */
#define FILLER_DEPTH 64   /* ... and the submissions each keeps unanswered */

static struct {
    enum workload workload;
    int port;
    int clients, workers, outstanding;
    long jobs;
    size_t payload;
    bool unique;
    const char *function;
    size_t function_size;
    int patience, limit; /* seconds without progress; seconds for the whole run */
    pid_t pids[MAX_PIDS];
    int pid_count;
} want = {BACKGROUND, 4730, 64, 64, 1, 100000, 100, true, "gearblast", 9, 10, 120, {0}, 0};

/* -------------------------------------------------------------------------------------------------- ledger -- */

/* What has happened to a job.  Each mark may be set once only; setting it again is the error we look for. */
enum mark { SENT = 1, CREATED = 2, ASSIGNED = 4, FINISHED = 8 };

struct job {
    uint64_t sent_at;  /* ns, when the submission was written */
    uint64_t handle;   /* fingerprint of the handle the server gave it */
    int32_t owner;     /* number of the link that submitted it */
    uint32_t marks;
};

static struct job *ledger;
static uint64_t stamp;  /* differs from run to run and travels in every payload: left-overs are recognised */

static struct {
    uint64_t sent, created, assigned, finished, echoed;
    uint64_t noops, no_jobs;
    uint64_t grabs_left; /* drain: grabs that may still be sent, so that none is sent in vain */
} tally;

static bool timed;           /* latencies count only now */
static char fault[256];      /* the first thing that went wrong; empty if nothing did */
static uint64_t doubled;     /* marks that were set twice, handles that were given twice */

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...)
{
    va_list rest;
    if (fault[0])
        return;
    va_start(rest, format);
    vsnprintf(fault, sizeof fault, format, rest);
    va_end(rest);
}

static void give_up(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void give_up(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    fputs("gearblast: ", stderr);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    va_end(rest);
    exit(2);
}

static void *need(void *memory)
{
    if (!memory)
        give_up("out of memory");
    return memory;
}

static uint64_t read_clock(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Sets a mark; false (and a fault) if the job had it already. */
static bool mark_once(uint64_t id, enum mark mark, const char *what)
{
    if (ledger[id].marks & mark) {
        doubled++;
        complain("job %llu was %s twice", (unsigned long long)id, what);
        return false;
    }
    ledger[id].marks |= mark;
    return true;
}

/* ----------------------------------------------------------------------------------------------- histogram -- */

/* 64 steps to each power of two: a value is known to within 1.6 %, whatever its size, in constant memory. */
#define STEP_BITS 6
#define STEPS (1u << STEP_BITS)
static uint64_t histogram[(64 - STEP_BITS + 1) * STEPS];
static uint64_t samples, slowest;

static void note_latency(uint64_t ns)
{
    unsigned slot;
    if (ns < STEPS) {
        slot = (unsigned)ns;
    } else {
        unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - STEP_BITS;
        slot = (shift + 1) * STEPS + (unsigned)((ns >> shift) & (STEPS - 1));
    }
    histogram[slot]++;
    samples++;
    if (ns > slowest)
        slowest = ns;
}

static double quantile_us(double share)
{
    uint64_t wanted = (uint64_t)(share * (double)samples), seen = 0;
    if (!samples)
        return 0;
    for (unsigned slot = 0; slot < sizeof histogram / sizeof *histogram; slot++) {
        seen += histogram[slot];
        if (seen > wanted) {
            double low, width = 1;
            if (slot < STEPS) {
                low = slot;
            } else {
                unsigned shift = slot / STEPS - 1;
                low = (double)((uint64_t)(STEPS + slot % STEPS) << shift);
                width = (double)((uint64_t)1 << shift);
            }
            return (low + width / 2) / 1000;
        }
    }
    return (double)slowest / 1000;
}

/* --------------------------------------------------------------------------------------------------- links -- */

enum packet {
    P_CAN_DO = 1, P_PRE_SLEEP = 4, P_NOOP = 6, P_SUBMIT_JOB = 7, P_JOB_CREATED = 8, P_GRAB_JOB = 9, P_NO_JOB = 10,
    P_JOB_ASSIGN = 11, P_WORK_COMPLETE = 13, P_ECHO_REQ = 16, P_ECHO_RES = 17, P_SUBMIT_JOB_BG = 18, P_ERROR = 19,
};
#define HEADER 12
#define TAG 16 /* the stamp and the job's number: the start of a payload and the whole of a result */

/* Bytes that come in at one end and leave at the other. */
struct pipe_of_bytes {
    unsigned char *base;
    size_t first, last, room;
};

/* A queue of numbers of fixed size: answers come in the order of the requests. */
struct ring {
    uint64_t *slot;
    uint32_t mask, head, count;
};

struct link {
    int fd, number;
    bool worker, asleep, waits_for_room;
    int unanswered;           /* client: jobs under way that count against the limit */
    struct ring ring;         /* client: numbers of jobs not yet created; worker: times of grabs not yet answered */
    struct pipe_of_bytes in, out;
};

static int poller = -1;
static struct link *links;
static int link_count;
static unsigned char *submission; /* a whole SUBMIT packet; only the unique id and the tag change */
static size_t submission_size, unique_at, tag_at;

static void ring_make(struct ring *ring, int capacity)
{
    uint32_t size = 1;
    while (size < (uint32_t)capacity)
        size *= 2;
    ring->slot = need(calloc(size, sizeof *ring->slot));
    ring->mask = size - 1;
    ring->head = ring->count = 0;
}

static void ring_put(struct ring *ring, uint64_t value)
{
    ring->slot[(ring->head + ring->count++) & ring->mask] = value;
}

static bool ring_take(struct ring *ring, uint64_t *value)
{
    if (!ring->count)
        return false;
    *value = ring->slot[ring->head++ & ring->mask];
    ring->count--;
    return true;
}

/* Room for size more bytes at the end. */
static unsigned char *make_room(struct pipe_of_bytes *p, size_t size)
{
    if (p->first == p->last)
        p->first = p->last = 0;
    if (p->room - p->last < size && p->first) {
        memmove(p->base, p->base + p->first, p->last - p->first);
        p->last -= p->first;
        p->first = 0;
    }
    if (p->room - p->last < size) {
        p->room = (p->last + size) * 2;
        p->base = need(realloc(p->base, p->room));
    }
    return p->base + p->last;
}

static void put_number(unsigned char *to, uint32_t value)
{
    value = htonl(value);
    memcpy(to, &value, 4);
}

static uint32_t get_number(const unsigned char *from)
{
    uint32_t value;
    memcpy(&value, from, 4);
    return ntohl(value);
}

/* Starts a request in a link's output; the caller fills in the body. */
static unsigned char *begin(struct link *link, enum packet type, size_t body)
{
    unsigned char *to = make_room(&link->out, HEADER + body);
    memcpy(to, "\0REQ", 4);
    put_number(to + 4, type);
    put_number(to + 8, (uint32_t)body);
    link->out.last += HEADER + body;
    return to + HEADER;
}

static void push_out(struct link *link)
{
    struct pipe_of_bytes *out = &link->out;
    bool blocked = false;
    while (out->first < out->last) {
        ssize_t n = send(link->fd, out->base + out->first, out->last - out->first, MSG_NOSIGNAL);
        if (n >= 0) {
            out->first += (size_t)n;
        } else if (errno == EAGAIN) {
            blocked = true;
            break;
        } else if (errno != EINTR) {
            complain("cannot send: %s", strerror(errno));
            return;
        }
    }
    if (blocked != link->waits_for_room) {
        struct epoll_event event = {.events = EPOLLIN | (blocked ? EPOLLOUT : 0u), .data.ptr = link};
        link->waits_for_room = blocked;
        epoll_ctl(poller, EPOLL_CTL_MOD, link->fd, &event);
    }
}

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)want.port)};
    struct timeval patience = {.tv_sec = want.patience};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0)
        give_up("socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        give_up("cannot connect to 127.0.0.1 port %d: %s", want.port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

/* Opens a link and waits for the answer to an echo, so that the server has surely accepted and set it up: the
 * accept queue never overflows, and nothing of this falls into the timed part. */
static struct link *open_link(bool worker, int depth)
{
    static const unsigned char hello[] = "\0REQ\0\0\0\20\0\0\0\2hi", answer[] = "\0RES\0\0\0\21\0\0\0\2hi";
    unsigned char got[sizeof answer - 1];
    struct link *link = &links[link_count];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    memset(link, 0, sizeof *link);
    link->number = link_count++;
    link->worker = worker;
    link->fd = dial();
    ring_make(&link->ring, depth);
    if (send(link->fd, hello, sizeof hello - 1, MSG_NOSIGNAL) != (ssize_t)sizeof hello - 1
        || recv(link->fd, got, sizeof got, MSG_WAITALL) != (ssize_t)sizeof got || memcmp(got, answer, sizeof got))
        give_up("the server does not answer ECHO_REQ as a Gearman server does");
    fcntl(link->fd, F_SETFL, fcntl(link->fd, F_GETFL) | O_NONBLOCK);
    if (epoll_ctl(poller, EPOLL_CTL_ADD, link->fd, &event) != 0)
        give_up("epoll: %s", strerror(errno));
    return link;
}

static void close_links(void)
{
    for (int i = 0; i < link_count; i++) {
        close(links[i].fd);
        free(links[i].ring.slot);
        free(links[i].in.base);
        free(links[i].out.base);
    }
    link_count = 0;
}

/* ------------------------------------------------------------------------------------------------- clients -- */

static uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t fingerprint(const unsigned char *at, size_t size)
{
    uint64_t value = 0xcbf29ce484222325u;
    while (size--)
        value = (value ^ *at++) * 0x100000001b3u;
    return value;
}

/* 36 characters in the shape of a UUID: scattered at the front, the job's number at the end, so never equal. */
static void write_unique(unsigned char *to, uint64_t id)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t front = scramble(stamp ^ id);
    int at = 0;
    for (int nibble = 0; nibble < 32; nibble++) {
        if (nibble == 8 || nibble == 12 || nibble == 16 || nibble == 20)
            to[at++] = '-';
        if (nibble < 20) {
            to[at++] = (unsigned char)digits[front & 15];
            front = front >> 4 | front << 60;
        } else {
            to[at++] = (unsigned char)digits[id >> (4 * (31 - nibble)) & 15];
        }
    }
}

static void prepare_submission(bool foreground)
{
    size_t unique = want.unique ? 36 : 0;
    unsigned char *p;
    unique_at = HEADER + want.function_size + 1;
    tag_at = unique_at + unique + 1;
    submission_size = tag_at + want.payload;
    free(submission);
    p = submission = need(calloc(1, submission_size));
    memcpy(p, "\0REQ", 4);
    put_number(p + 4, foreground ? P_SUBMIT_JOB : P_SUBMIT_JOB_BG);
    put_number(p + 8, (uint32_t)(submission_size - HEADER));
    memcpy(p + HEADER, want.function, want.function_size);
    memcpy(p + tag_at, &stamp, 8);
    for (size_t i = TAG; i < want.payload; i++)
        p[tag_at + i] = (unsigned char)(' ' + i % 95);
}

static void submit_up_to(struct link *link, int depth, uint64_t now)
{
    while (link->unanswered < depth && tally.sent < (uint64_t)want.jobs) {
        uint64_t id = tally.sent++;
        unsigned char *to = make_room(&link->out, submission_size);
        memcpy(to, submission, submission_size);
        if (want.unique)
            write_unique(to + unique_at, id);
        memcpy(to + tag_at + 8, &id, 8);
        link->out.last += submission_size;
        ring_put(&link->ring, id);
        link->unanswered++;
        ledger[id] = (struct job){.sent_at = now, .owner = link->number, .marks = SENT};
    }
}

/* The number of the job whose tag this is; -1 if it is none of ours. */
static long read_tag(const unsigned char *tag)
{
    uint64_t id;
    memcpy(&id, tag + 8, 8);
    return memcmp(tag, &stamp, 8) == 0 && id < tally.sent ? (long)id : -1;
}

static void complain_of_packet(const char *who, uint32_t type, const unsigned char *body, size_t size)
{
    if (type == P_ERROR) {
        const unsigned char *text = memchr(body, 0, size);
        complain("ERROR to a %s: %.*s: %.*s", who, (int)(text ? text - body : (long)size), (const char *)body,
                 text ? (int)(body + size - text - 1) : 0, text ? (const char *)text + 1 : "");
    } else {
        complain("packet of type %u to a %s, which nobody asked for", (unsigned)type, who);
    }
}

static void client_got(struct link *link, uint32_t type, const unsigned char *body, size_t size, uint64_t now)
{
    bool foreground = want.workload == FOREGROUND;
    if (type == P_JOB_CREATED) {
        uint64_t id;
        if (!ring_take(&link->ring, &id)) {
            complain("JOB_CREATED without a submission");
            return;
        }
        ledger[id].handle = fingerprint(body, size);
        ledger[id].marks |= CREATED;
        tally.created++;
        if (!foreground) {
            link->unanswered--;
            if (timed)
                note_latency(now - ledger[id].sent_at);
        }
    } else if (type == P_WORK_COMPLETE && foreground) {
        const unsigned char *result = memchr(body, 0, size);
        long id = result && (size_t)(body + size - result) == TAG + 1 ? read_tag(result + 1) : -1;
        if (id < 0) {
            complain("WORK_COMPLETE with a result that no worker gave");
        } else if (ledger[id].owner != link->number) {
            complain("the result of job %ld went to another client", id);
        } else if (!(ledger[id].marks & CREATED)) {
            complain("the result of job %ld came before its JOB_CREATED", id);
        } else if (ledger[id].handle != fingerprint(body, (size_t)(result - body))) {
            complain("the result of job %ld came under another handle", id);
        } else if (mark_once((uint64_t)id, FINISHED, "finished")) {
            tally.finished++;
            link->unanswered--;
            if (timed)
                note_latency(now - ledger[id].sent_at);
        }
    } else if (type == P_ECHO_RES) {
        tally.echoed++;
    } else {
        complain_of_packet("client", type, body, size);
    }
}

/* ------------------------------------------------------------------------------------------------- workers -- */

static void grab_up_to(struct link *link, uint32_t depth, uint64_t now)
{
    while (link->ring.count < depth) {
        if (want.workload == DRAIN) {
            if (!tally.grabs_left)
                return;
            tally.grabs_left--;
        }
        begin(link, P_GRAB_JOB, 0);
        ring_put(&link->ring, now);
    }
}

static uint32_t grab_depth(void)
{
    return want.workload == DRAIN ? (uint32_t)want.outstanding : 1;
}

static void worker_got(struct link *link, uint32_t type, const unsigned char *body, size_t size, uint64_t now)
{
    uint64_t asked = now;
    if ((type == P_JOB_ASSIGN || type == P_NO_JOB) && !ring_take(&link->ring, &asked)) {
        complain("%s without a GRAB_JOB", type == P_NO_JOB ? "NO_JOB" : "JOB_ASSIGN");
    } else if (type == P_JOB_ASSIGN) {
        const unsigned char *end = body + size, *function, *payload = NULL;
        unsigned char *to;
        size_t handle_size;
        long id;
        if ((function = memchr(body, 0, size)) != NULL)
            payload = memchr(function + 1, 0, (size_t)(end - function - 1));
        if (!payload || (size_t)(payload - function - 1) != want.function_size
            || memcmp(function + 1, want.function, want.function_size) || (size_t)(end - payload - 1) != want.payload
            || (id = read_tag(payload + 1)) < 0) {
            complain("JOB_ASSIGN of a job that is none of ours");
            return;
        }
        if (!mark_once((uint64_t)id, ASSIGNED, "assigned"))
            return;
        tally.assigned++;
        if (timed && want.workload == DRAIN)
            note_latency(now - asked);
        handle_size = (size_t)(function - body);
        to = begin(link, P_WORK_COMPLETE, handle_size + 1 + TAG);
        memcpy(to, body, handle_size + 1);
        memcpy(to + handle_size + 1, payload + 1, TAG);
        grab_up_to(link, grab_depth(), now); /* leaves in the same write as the result */
    } else if (type == P_NO_JOB) {
        tally.no_jobs++;
        if (want.workload == DRAIN)
            tally.grabs_left++;
        if (!link->ring.count && !link->asleep) {
            begin(link, P_PRE_SLEEP, 0);
            link->asleep = true;
        }
    } else if (type == P_NOOP) {
        tally.noops++;
        if (link->asleep) {
            link->asleep = false;
            grab_up_to(link, grab_depth(), now);
        }
    } else if (type == P_ECHO_RES) {
        tally.echoed++;
    } else {
        complain_of_packet("worker", type, body, size);
    }
}

/* ---------------------------------------------------------------------------------------------------- loop -- */

static int client_depth;        /* submissions each client keeps unanswered in this phase */
static uint64_t deadline;       /* of the whole run */

static void read_link(struct link *link)
{
    struct pipe_of_bytes *in = &link->in;
    unsigned char *space = make_room(in, 65536);
    ssize_t n = recv(link->fd, space, in->room - in->last, 0);
    uint64_t now;
    if (n <= 0) {
        if (n == 0)
            complain("the server closed a connection");
        else if (errno != EAGAIN && errno != EINTR)
            complain("cannot receive: %s", strerror(errno));
        return;
    }
    in->last += (size_t)n;
    now = read_clock(CLOCK_MONOTONIC);
    while (in->last - in->first >= HEADER && !fault[0]) {
        const unsigned char *packet = in->base + in->first;
        uint32_t type = get_number(packet + 4), size = get_number(packet + 8);
        if (memcmp(packet, "\0RES", 4)) {
            complain("bytes from the server that are no packet");
        } else if (size > (1u << 24)) {
            complain("packet of %u bytes from the server", (unsigned)size);
        } else if (in->last - in->first - HEADER < size) {
            break;
        } else {
            in->first += HEADER + size;
            (link->worker ? worker_got : client_got)(link, type, packet + HEADER, size, now);
        }
    }
    if (!link->worker)
        submit_up_to(link, client_depth, now);
    push_out(link);
}

/* Serves the links until *counter has reached goal.  False if something went wrong or nothing went on. */
static bool serve_until(const uint64_t *counter, uint64_t goal)
{
    struct epoll_event events[128];
    uint64_t reached = UINT64_MAX, since = 0;
    while (*counter < goal && !fault[0]) {
        uint64_t now = read_clock(CLOCK_MONOTONIC);
        uint64_t progress = tally.created + tally.assigned + tally.finished + tally.echoed;
        int n;
        if (progress != reached) {
            reached = progress;
            since = now;
        } else if (now - since > (uint64_t)want.patience * 1000000000u) {
            complain("no progress for %d s", want.patience);
            break;
        }
        if (now > deadline) {
            complain("not done after %d s", want.limit);
            break;
        }
        n = epoll_wait(poller, events, sizeof events / sizeof *events, 250);
        for (int i = 0; i < n && !fault[0]; i++) {
            struct link *link = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                push_out(link);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                read_link(link);
        }
    }
    return !fault[0];
}

/* One echo on every link: when all have come back, the server has worked off everything that was sent before. */
static bool settle(void)
{
    uint64_t goal = tally.echoed + (uint64_t)link_count;
    for (int i = 0; i < link_count; i++) {
        begin(&links[i], P_ECHO_REQ, 0);
        push_out(&links[i]);
    }
    return serve_until(&tally.echoed, goal);
}

static void start_clients(void)
{
    for (int i = 0; i < link_count; i++) {
        if (!links[i].worker) {
            submit_up_to(&links[i], client_depth, read_clock(CLOCK_MONOTONIC));
            push_out(&links[i]);
        }
    }
}

static void start_workers(void)
{
    for (int i = 0; i < link_count; i++) {
        if (links[i].worker) {
            grab_up_to(&links[i], grab_depth(), read_clock(CLOCK_MONOTONIC));
            push_out(&links[i]);
        }
    }
}

/* -------------------------------------------------------------------------------------------------- server -- */

/* CPU time of the server, all threads, in ns. */
static uint64_t server_cpu(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < want.pid_count; i++) {
        clockid_t clock;
        if (clock_getcpuclockid(want.pids[i], &clock) == 0)
            sum += read_clock(clock);
    }
    return sum;
}

/* A "Name: value kB" line of /proc/PID/status, summed over the server's processes. */
static long server_memory(const char *name)
{
    long sum = 0;
    for (int i = 0; i < want.pid_count; i++) {
        char path[64], line[256];
        FILE *file;
        snprintf(path, sizeof path, "/proc/%ld/status", (long)want.pids[i]);
        if (!(file = fopen(path, "r")))
            continue;
        while (fgets(line, sizeof line, file))
            if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
                sum += strtol(line + strlen(name) + 1, NULL, 10);
        fclose(file);
    }
    return sum;
}

/* CPU time that this whole machine has spent on anything, in ns (in steps of 10 ms); time taken by the host included. */
static uint64_t machine_cpu(void)
{
    unsigned long long user = 0, nice = 0, system = 0, irq = 0, softirq = 0, steal = 0;
    FILE *file = fopen("/proc/stat", "r");
    if (!file)
        return 0;
    if (fscanf(file, "cpu %llu %llu %llu %*u %*u %llu %llu %llu", &user, &nice, &system, &irq, &softirq, &steal) != 6)
        user = nice = system = irq = softirq = steal = 0;
    fclose(file);
    return (user + nice + system + irq + softirq + steal) * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

/* Jobs the server says it has of our function, by the text command "status"; -1 if it gives no sense. */
static long jobs_in_server(void)
{
    struct pipe_of_bytes text = {0};
    long total = -1;
    int fd = dial();
    if (send(fd, "status\n", 7, MSG_NOSIGNAL) == 7) {
        for (;;) {
            ssize_t n = recv(fd, make_room(&text, 4096), 4095, 0);
            if (n <= 0)
                break;
            text.last += (size_t)n;
            text.base[text.last] = 0;
            if (strcmp((char *)text.base, ".\n") == 0
                || (text.last > 3 && memcmp(text.base + text.last - 3, "\n.\n", 3) == 0)) {
                total = 0;
                for (char *line = (char *)text.base; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
                    if (strncmp(line, want.function, want.function_size) == 0 && line[want.function_size] == '\t')
                        total = strtol(line + want.function_size + 1, NULL, 10);
                break;
            }
        }
    }
    close(fd);
    free(text.base);
    return total;
}

/* ---------------------------------------------------------------------------------------------------- main -- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Every job must have got a handle of its own. */
static void check_handles(void)
{
    uint64_t *all = need(malloc((size_t)want.jobs * sizeof *all));
    for (long i = 0; i < want.jobs; i++)
        all[i] = ledger[i].handle;
    qsort(all, (size_t)want.jobs, sizeof *all, by_value);
    for (long i = 1; i < want.jobs; i++)
        doubled += all[i] == all[i - 1];
    free(all);
    if (doubled)
        complain("%llu jobs were given the handle of another", (unsigned long long)doubled);
}

static const char usage[] =
    "usage: gearblast [options] background|drain|foreground\n"
    "  --host 127.0.0.1   the server's address; no other is allowed\n"
    "  --port N           its port (4730)\n"
    "  --clients N        client connections (64)\n"
    "  --workers N        worker connections (64)\n"
    "  --jobs N           jobs (100000)\n"
    "  --outstanding N    unanswered submissions per client; drain: unanswered grabs per worker (1)\n"
    "  --payload N        bytes of payload, 16 or more (100)\n"
    "  --no-unique        send no unique ids; otherwise every job has its own of 36 bytes\n"
    "  --function NAME    name of the function (gearblast)\n"
    "  --pid N            a process of the server, to report its CPU time and memory; may be repeated\n"
    "  --patience N       give up after N seconds without progress (10)\n"
    "  --limit N          give up after N seconds in all (120)\n";

static long number(const char *name, const char *text, long least, long most)
{
    char *end;
    long value;
    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        give_up("--%s must be a number from %ld to %ld", name, least, most);
    return value;
}

static void read_options(int argc, char **argv)
{
    enum { HOST = 256, PORT, CLIENTS, WORKERS, JOBS, OUTSTANDING, PAYLOAD, NO_UNIQUE, FUNCTION, PID, PATIENCE, LIMIT };
    static const struct option known[] = {
        {"host", 1, NULL, HOST}, {"port", 1, NULL, PORT}, {"clients", 1, NULL, CLIENTS},
        {"workers", 1, NULL, WORKERS}, {"jobs", 1, NULL, JOBS}, {"outstanding", 1, NULL, OUTSTANDING},
        {"payload", 1, NULL, PAYLOAD}, {"no-unique", 0, NULL, NO_UNIQUE}, {"function", 1, NULL, FUNCTION},
        {"pid", 1, NULL, PID}, {"patience", 1, NULL, PATIENCE}, {"limit", 1, NULL, LIMIT},
        {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int option, which;
    while ((option = getopt_long(argc, argv, "h", known, &which)) != -1) {
        const char *name = option >= HOST ? known[which].name : "";
        switch (option) {
        case HOST:
            if (strcmp(optarg, "127.0.0.1") && strcmp(optarg, "localhost"))
                give_up("this program loads servers on 127.0.0.1 only");
            break;
        case PORT: want.port = (int)number(name, optarg, 1, 65535); break;
        case CLIENTS: want.clients = (int)number(name, optarg, 1, 2000); break;
        case WORKERS: want.workers = (int)number(name, optarg, 1, 2000); break;
        case JOBS: want.jobs = number(name, optarg, 1, 5000000); break;
        case OUTSTANDING: want.outstanding = (int)number(name, optarg, 1, 4096); break;
        case PAYLOAD: want.payload = (size_t)number(name, optarg, TAG, 1 << 20); break;
        case NO_UNIQUE: want.unique = false; break;
        case FUNCTION:
            want.function = optarg;
            want.function_size = strlen(optarg);
            if (!want.function_size || want.function_size > MAX_FUNCTION || strpbrk(optarg, "\t\n\"\\"))
                give_up("--function must be a name of 1 to %d plain characters", MAX_FUNCTION);
            break;
        case PID:
            if (want.pid_count == MAX_PIDS)
                give_up("at most %d times --pid", MAX_PIDS);
            want.pids[want.pid_count++] = (pid_t)number(name, optarg, 1, INT32_MAX);
            break;
        case PATIENCE: want.patience = (int)number(name, optarg, 1, 600); break;
        case LIMIT: want.limit = (int)number(name, optarg, 1, 3600); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (argc - optind != 1) {
        fputs(usage, stderr);
        exit(2);
    }
    for (which = 0; which < 3 && strcmp(argv[optind], workload_names[which]); which++)
        ;
    if (which == 3)
        give_up("no workload \"%s\": background, drain or foreground", argv[optind]);
    want.workload = (enum workload)which;
    for (int i = 0; i < want.pid_count; i++) {
        clockid_t clock;
        if (clock_getcpuclockid(want.pids[i], &clock) != 0)
            give_up("cannot read the CPU time of process %ld", (long)want.pids[i]);
    }
}

/* Everything before the clock starts: fill the queue for a drain, connect, register the workers and, where there
 * is nothing to do for them yet, send them to sleep. */
static bool set_up(void)
{
    bool foreground = want.workload == FOREGROUND;
    prepare_submission(foreground);
    if (want.workload == DRAIN) {
        client_depth = FILLER_DEPTH;
        for (int i = 0; i < FILLER_LINKS; i++)
            open_link(false, client_depth);
        start_clients();
        if (!serve_until(&tally.created, (uint64_t)want.jobs) || !settle())
            return false;
        close_links();
        tally.grabs_left = (uint64_t)want.jobs;
    }
    client_depth = want.outstanding;
    if (want.workload != BACKGROUND) {
        for (int i = 0; i < want.workers; i++) {
            struct link *link = open_link(true, (int)grab_depth());
            memcpy(begin(link, P_CAN_DO, want.function_size), want.function, want.function_size);
        }
        if (foreground)
            start_workers();
        if (!settle() || (foreground && !settle())) /* the second round: PRE_SLEEP has arrived, too */
            return false;
    }
    if (want.workload != DRAIN)
        for (int i = 0; i < want.clients; i++)
            open_link(false, want.outstanding);
    return true;
}

int main(int argc, char **argv)
{
    static const struct timespec moment = {.tv_nsec = 50 * 1000 * 1000};
    uint64_t begun = 0, ended = 0, own_cpu = 0, their_cpu = 0, all_cpu = 0, unanswered = 0;
    long before = 0, after = 0, left = -1, expected, done;
    double seconds;
    struct rlimit files;

    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    stamp = scramble(read_clock(CLOCK_REALTIME) ^ (uint64_t)getpid() << 40);
    deadline = read_clock(CLOCK_MONOTONIC) + (uint64_t)want.limit * 1000000000u;
    ledger = need(calloc((size_t)want.jobs, sizeof *ledger));
    links = need(calloc((size_t)(want.clients + want.workers + FILLER_LINKS), sizeof *links));
    if ((poller = epoll_create1(EPOLL_CLOEXEC)) < 0)
        give_up("epoll: %s", strerror(errno));

    if (set_up()) {
        tally.noops = tally.no_jobs = 0;
        timed = true;
        before = server_memory("VmRSS");
        all_cpu = machine_cpu();
        their_cpu = server_cpu();
        own_cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
        begun = read_clock(CLOCK_MONOTONIC);
        if (want.workload == DRAIN)
            start_workers();
        else
            start_clients();
        if (serve_until(want.workload == BACKGROUND ? &tally.created
                        : want.workload == DRAIN    ? &tally.assigned
                                                    : &tally.finished,
                        (uint64_t)want.jobs))
            settle();
        ended = read_clock(CLOCK_MONOTONIC);
        own_cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID) - own_cpu;
        their_cpu = server_cpu() - their_cpu;
        all_cpu = machine_cpu() - all_cpu;
        after = server_memory("VmRSS");
        timed = false;
    }

    /* The server must now hold exactly what it should: all the jobs, or none. */
    expected = want.workload == BACKGROUND ? want.jobs : 0;
    if (!fault[0]) {
        check_handles();
        for (int tries = 0; tries < 40 && (left = jobs_in_server()) != expected; tries++)
            nanosleep(&moment, NULL);
        if (left != expected)
            complain("the server says that it holds %ld jobs where %ld are expected", left, expected);
    }
    for (long i = 0; i < want.jobs; i++) {
        enum mark last = want.workload == BACKGROUND ? CREATED : want.workload == DRAIN ? ASSIGNED : FINISHED;
        unanswered += !(ledger[i].marks & last);
    }
    if (unanswered)
        complain("%llu jobs were not answered", (unsigned long long)unanswered);

    seconds = (double)(ended - begun) / 1e9;
    done = want.jobs - (long)unanswered;
    printf("{\"workload\": \"%s\", \"clients\": %d, \"workers\": %d, \"jobs\": %ld, \"outstanding\": %d, "
           "\"payload\": %zu, \"unique\": %s, ",
           workload_names[want.workload], want.workload == DRAIN ? 0 : want.clients,
           want.workload == BACKGROUND ? 0 : want.workers, want.jobs, want.outstanding, want.payload,
           want.unique ? "true" : "false");
    printf("\"seconds\": %.6f, \"jobs_per_second\": %.1f, \"generator_cpu_share\": %.3f, ", seconds,
           seconds > 0 ? (double)done / seconds : 0, seconds > 0 ? (double)own_cpu / 1e9 / seconds : 0);
    if (want.pid_count)
        printf("\"server_cpu_us_per_job\": %.3f, \"server_cpu_share\": %.3f, \"server_rss_before_kb\": %ld, "
               "\"server_rss_after_kb\": %ld, \"server_rss_peak_kb\": %ld, \"other_cpu_share\": %.2f, ",
               done ? (double)their_cpu / 1e3 / (double)done : 0, seconds > 0 ? (double)their_cpu / 1e9 / seconds : 0,
               before, after, server_memory("VmHWM"),
               all_cpu > own_cpu + their_cpu && seconds > 0
                   ? (double)(all_cpu - own_cpu - their_cpu) / 1e9 / seconds : 0);
    printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, ", quantile_us(0.50), quantile_us(0.99),
           (double)slowest / 1000);
    printf("\"noops\": %llu, \"no_jobs\": %llu, \"unanswered\": %llu, \"doubled\": %llu, \"left_in_server\": %ld, ",
           (unsigned long long)tally.noops, (unsigned long long)tally.no_jobs, (unsigned long long)unanswered,
           (unsigned long long)doubled, left);
    for (char *c = fault; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < 32 || (unsigned char)*c > 126)
            *c = '?';
    printf("\"ok\": %s, \"fault\": \"%s\"}\n", fault[0] ? "false" : "true", fault);
    close_links();
    return fault[0] ? 1 : 0;
}
