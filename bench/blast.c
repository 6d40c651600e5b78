/* What the load generators have in common; see blast.h. */
#define _GNU_SOURCE
#include "blast.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct wishes want = {
    .port = 4730, .clients = 64, .workers = 64, .outstanding = 1, .jobs = 100000, .payload = 100, .patience = 10, .limit = 120,
};

/* ------------------------------------------------------------------------------------------------ mistakes -- */

char fault[256];

void complain(const char *format, ...)
{
    va_list rest;
    if (fault[0])
        return;
    va_start(rest, format);
    vsnprintf(fault, sizeof fault, format, rest);
    va_end(rest);
}

void give_up(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    fprintf(stderr, "%s: ", want.program);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    va_end(rest);
    exit(2);
}

void *need(void *memory)
{
    if (!memory)
        give_up("out of memory");
    return memory;
}

long number(const char *name, const char *text, long least, long most)
{
    char *end;
    long value;
    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        give_up("--%s must be a number from %ld to %ld", name, least, most);
    return value;
}

void add_pid(long pid)
{
    clockid_t clock;
    if (want.pid_count == MAX_PIDS)
        give_up("at most %d times --pid", MAX_PIDS);
    if (clock_getcpuclockid((pid_t)pid, &clock) != 0)
        give_up("cannot read the CPU time of process %ld", pid);
    want.pids[want.pid_count++] = (pid_t)pid;
}

void check_host(const char *name)
{
    if (strcmp(name, "127.0.0.1") && strcmp(name, "localhost"))
        give_up("this program loads servers on 127.0.0.1 only");
}

/* -------------------------------------------------------------------------------------------------- ledger -- */

struct job *ledger;
uint64_t stamp, doubled;
struct tally tally;

static uint64_t read_clock(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t fingerprint(const unsigned char *at, size_t size)
{
    uint64_t value = 0xcbf29ce484222325u;
    while (size--)
        value = (value ^ *at++) * 0x100000001b3u;
    return value;
}

void make_ledger(long jobs)
{
    stamp = scramble(read_clock(CLOCK_REALTIME) ^ (uint64_t)getpid() << 40);
    ledger = need(calloc((size_t)jobs, sizeof *ledger));
}

/* Sets a mark; false (and a fault) if the job had it already. */
bool mark_once(uint64_t id, enum mark mark, const char *what)
{
    if (ledger[id].marks & mark) {
        doubled++;
        complain("job %llu was %s twice", (unsigned long long)id, what);
        return false;
    }
    ledger[id].marks |= mark;
    return true;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Every job must have got a handle of its own. */
void check_handles(uint64_t jobs)
{
    uint64_t *all = need(malloc(jobs * sizeof *all));
    uint64_t same = 0;
    for (uint64_t i = 0; i < jobs; i++)
        all[i] = ledger[i].handle;
    qsort(all, jobs, sizeof *all, by_value);
    for (uint64_t i = 1; i < jobs; i++)
        same += all[i] == all[i - 1];
    free(all);
    doubled += same;
    if (same)
        complain("%llu jobs were given the handle of another", (unsigned long long)same);
}

uint64_t count_without(enum mark mark, uint64_t jobs)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < jobs; i++)
        count += !(ledger[i].marks & mark);
    return count;
}

static unsigned char *letters; /* what follows the tag in every payload */

void write_payload(unsigned char *to, size_t size)
{
    free(letters);
    letters = need(malloc(size));
    for (size_t i = 0; i < size; i++)
        letters[i] = (unsigned char)(' ' + i % 95);
    memcpy(to, letters, size);
    memcpy(to, &stamp, 8);
}

void write_tag(unsigned char *payload, uint64_t id)
{
    memcpy(payload + 8, &id, 8);
}

long read_payload(const unsigned char *payload, size_t size)
{
    uint64_t id;
    memcpy(&id, payload + 8, 8);
    if (memcmp(payload, &stamp, 8) || id >= tally.sent || memcmp(payload + TAG, letters + TAG, size - TAG))
        return -1;
    return (long)id;
}

/* ----------------------------------------------------------------------------------------------- histogram -- */

/* 64 steps to each power of two: a value is known to within 1.6 %, whatever its size, in constant memory. */
#define STEP_BITS 6
#define STEPS (1u << STEP_BITS)
static uint64_t histogram[(64 - STEP_BITS + 1) * STEPS];
static uint64_t samples, slowest;
bool timed;

void note_latency(uint64_t ns)
{
    unsigned slot;
    if (!timed)
        return;
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

/* ------------------------------------------------------------------------------------------------- figures -- */

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
long server_memory_kb(const char *name)
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

void begin_figures(struct figures *figures)
{
    memset(histogram, 0, sizeof histogram);
    samples = slowest = 0;
    memset(figures, 0, sizeof *figures);
    figures->rss_before_kb = server_memory_kb("VmRSS");
    figures->machine_cpu = machine_cpu();
    figures->server_cpu = server_cpu();
    figures->own_cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    timed = true;
    figures->begun = now_ns();
}

void end_figures(struct figures *figures, uint64_t jobs)
{
    figures->ended = now_ns();
    timed = false;
    figures->own_cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID) - figures->own_cpu;
    figures->server_cpu = server_cpu() - figures->server_cpu;
    figures->machine_cpu = machine_cpu() - figures->machine_cpu;
    figures->rss_after_kb = server_memory_kb("VmRSS");
    figures->jobs = jobs;
    figures->samples = samples;
    figures->p50_us = quantile_us(0.50);
    figures->p99_us = quantile_us(0.99);
    figures->max_us = (double)slowest / 1000;
}

void print_figures(const struct figures *figures)
{
    double seconds = (double)(figures->ended - figures->begun) / 1e9;
    double per_second = seconds > 0 ? 1 / seconds : 0;
    uint64_t known = figures->own_cpu + figures->server_cpu;
    printf("\"jobs\": %llu, \"seconds\": %.6f, \"generator_cpu_share\": %.3f, ", (unsigned long long)figures->jobs,
           seconds, (double)figures->own_cpu / 1e9 * per_second);
    if (want.pid_count)
        printf("\"server_cpu_us_per_job\": %.3f, \"server_rss_before_kb\": %ld, \"server_rss_after_kb\": %ld, "
               "\"other_cpu_share\": %.2f, ",
               figures->jobs ? (double)figures->server_cpu / 1e3 / (double)figures->jobs : 0, figures->rss_before_kb,
               figures->rss_after_kb,
               figures->machine_cpu > known ? (double)(figures->machine_cpu - known) / 1e9 * per_second : 0);
    if (figures->samples)
        printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, ", figures->p50_us, figures->p99_us,
               figures->max_us);
}

/* The last part of the JSON object. */
void print_end(long left_in_server, uint64_t unanswered)
{
    for (char *c = fault; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < 32 || (unsigned char)*c > 126)
            *c = '?';
    printf("\"unanswered\": %llu, \"doubled\": %llu, \"left_in_server\": %ld, \"ok\": %s, \"fault\": \"%s\"}\n",
           (unsigned long long)unanswered, (unsigned long long)doubled, left_in_server, fault[0] ? "false" : "true",
           fault);
}

/* --------------------------------------------------------------------------------------------------- links -- */

struct link *links;
int link_count;
static long most_links;
static int poller = -1;
size_t (*take_message)(struct link *link, const unsigned char *at, size_t size, uint64_t now);
void (*after_messages)(struct link *link, uint64_t now);

static void ring_make(struct ring *ring, int capacity)
{
    uint32_t size = 1;
    while (size < (uint32_t)capacity)
        size *= 2;
    ring->slot = need(calloc(size, sizeof *ring->slot));
    ring->mask = size - 1;
    ring->head = ring->count = 0;
}

void ring_put(struct ring *ring, uint64_t value)
{
    ring->slot[(ring->head + ring->count++) & ring->mask] = value;
}

bool ring_take(struct ring *ring, uint64_t *value)
{
    if (!ring->count)
        return false;
    *value = ring->slot[ring->head++ & ring->mask];
    ring->count--;
    return true;
}

/* Room for size more bytes at the end. */
unsigned char *make_room(struct pipe_of_bytes *p, size_t size)
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

void add_bytes(struct link *link, const void *bytes, size_t size)
{
    memcpy(make_room(&link->out, size), bytes, size);
    link->out.last += size;
}

void push_out(struct link *link)
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

/* A blocking connection to the server. */
int dial(void)
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

/* Room for so many links, also as far as the system is concerned. */
void allow_links(long count)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
        if (files.rlim_max != RLIM_INFINITY && (rlim_t)count + 16 > files.rlim_max)
            give_up("%ld connections need more open files than the %ld that are allowed (ulimit -Hn)", count,
                    (long)files.rlim_max);
    }
    links = need(calloc((size_t)count, sizeof *links));
    most_links = count;
    if ((poller = epoll_create1(EPOLL_CLOEXEC)) < 0)
        give_up("epoll: %s", strerror(errno));
}

/* Opens a link, still blocking so that the caller can greet the server; then watch_link(). */
struct link *open_link(enum role role, int depth)
{
    struct link *link = &links[link_count];
    if (link_count == most_links)
        give_up("more links than were allowed for");
    memset(link, 0, sizeof *link);
    link->number = link_count++;
    link->role = role;
    link->fd = dial();
    ring_make(&link->ring, depth);
    return link;
}

void watch_link(struct link *link)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    fcntl(link->fd, F_SETFL, fcntl(link->fd, F_GETFL) | O_NONBLOCK);
    if (epoll_ctl(poller, EPOLL_CTL_ADD, link->fd, &event) != 0)
        give_up("epoll: %s", strerror(errno));
}

/* At once: without the minute in which the system remembers each; it has not too many ports. */
void close_links(bool at_once)
{
    static const struct linger none = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < link_count; i++) {
        if (at_once)
            setsockopt(links[i].fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
        close(links[i].fd);
        free(links[i].ring.slot);
        free(links[i].in.base);
        free(links[i].out.base);
    }
    link_count = 0;
}

/* ---------------------------------------------------------------------------------------------------- loop -- */

static uint64_t deadline; /* of the whole run */

void start_clock(void)
{
    deadline = now_ns() + (uint64_t)want.limit * 1000000000u;
}

/* Takes all whole messages; gives the number of bytes that they had. */
static size_t take_messages(struct link *link, const unsigned char *at, size_t size, uint64_t now)
{
    size_t taken = 0, one;
    while (!fault[0] && taken < size && (one = take_message(link, at + taken, size - taken, now)) > 0)
        taken += one;
    return taken;
}

/* Most of what arrives is whole and is read where it lies; only the beginning of a message is kept by its link. */
static void read_link(struct link *link)
{
    static unsigned char common[1 << 18];
    struct pipe_of_bytes *in = &link->in;
    bool is_new = in->first == in->last;
    unsigned char *space = is_new ? common : make_room(in, sizeof common);
    ssize_t n = recv(link->fd, space, sizeof common, 0);
    uint64_t now;
    if (n <= 0) {
        if (n == 0)
            complain("the server closed a connection");
        else if (errno != EAGAIN && errno != EINTR)
            complain("cannot receive: %s", strerror(errno));
        return;
    }
    now = now_ns();
    if (is_new) {
        size_t taken = take_messages(link, common, (size_t)n, now);
        if (taken < (size_t)n) {
            memcpy(make_room(in, (size_t)n - taken), common + taken, (size_t)n - taken);
            in->last += (size_t)n - taken;
        }
    } else {
        in->last += (size_t)n;
        in->first += take_messages(link, in->base + in->first, in->last - in->first, now);
    }
    after_messages(link, now);
    push_out(link);
}

/* Serves the links until *counter has reached goal.  False if something went wrong or nothing went on. */
bool serve_until(const uint64_t *counter, uint64_t goal)
{
    struct epoll_event events[128];
    uint64_t reached = UINT64_MAX, since = 0;
    while (*counter < goal && !fault[0]) {
        uint64_t now = now_ns();
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
