/*
 * What the load generators have in common: a ledger that follows every job, a histogram of latencies, connections in
 * one epoll set, and what the server's processes cost.  One thread; nothing but the C library.
 */
#ifndef BLAST_H
#define BLAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MAX_PIDS 16
#define MOST_PID 4194304l /* none of Linux's is as high */
#define TAG 16            /* the stamp and the job's number: the start of every payload */
#define MOST_PAYLOAD (16l << 20)
#define MOST_JOBS 20000000l
#define MOST_LINKS 50000l
#define FEW_LINKS 1000    /* more are not closed one by one, see close_links() */
#define FILLER_LINKS 16   /* connections that fill a queue beforehand ... */
#define FILLER_DEPTH 64   /* ... and the submissions that each keeps unanswered */

/* What every generator is asked for. */
struct wishes {
    const char *program;
    int port;
    int clients, workers, outstanding;
    long jobs;
    size_t payload;
    int patience, limit; /* seconds without progress; seconds for the whole run */
    pid_t pids[MAX_PIDS];
    int pid_count;
};
extern struct wishes want;

/* ---- mistakes: ours end the program, the server's are remembered ---- */

extern char fault[256];  /* the first thing that went wrong; empty if nothing did */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
void give_up(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *need(void *memory);
long number(const char *name, const char *text, long least, long most);
void add_pid(long pid);
void check_host(const char *name);

/* ---- ledger ---- */

/* What has happened to a job.  Each mark may be set once only; setting it again is the error we look for. */
enum mark { SENT = 1, CREATED = 2, ASSIGNED = 4, FINISHED = 8 };

struct job {
    uint64_t sent_at;  /* ns, when the submission was written */
    uint64_t handle;   /* fingerprint of what the server calls it */
    int32_t owner;     /* number of the link that submitted it */
    uint32_t marks;
};

extern struct job *ledger;
extern uint64_t stamp;    /* differs from run to run and travels in every payload: left-overs are recognised */
extern uint64_t doubled;  /* marks that were set twice, handles that were given twice */

extern struct tally {
    uint64_t sent, created, assigned, finished, echoed;
    uint64_t noops, no_jobs;
    uint64_t grabs_left; /* drain: grabs that may still be sent, so that none is sent in vain */
} tally;

uint64_t now_ns(void);
uint64_t scramble(uint64_t x);
uint64_t fingerprint(const unsigned char *at, size_t size);
void make_ledger(long jobs);
bool mark_once(uint64_t id, enum mark mark, const char *what);
void check_handles(uint64_t jobs);
uint64_t count_without(enum mark mark, uint64_t jobs);

/* A payload is the tag and then letters, the same in all jobs. */
void write_payload(unsigned char *to, size_t size);
void write_tag(unsigned char *payload, uint64_t id);
long read_payload(const unsigned char *payload, size_t size); /* the job's number; -1: none of ours, or not as sent */

/* ---- figures of a timed part ---- */

struct figures {
    uint64_t begun, ended, own_cpu, server_cpu, machine_cpu;
    uint64_t jobs, samples;
    long rss_before_kb, rss_after_kb;
    double p50_us, p99_us, max_us;
};

extern bool timed; /* latencies count only now */
void note_latency(uint64_t ns);
void begin_figures(struct figures *figures);
void end_figures(struct figures *figures, uint64_t jobs);
void print_figures(const struct figures *figures);
void print_end(long left_in_server, uint64_t unanswered);
long server_memory_kb(const char *name);

/* ---- links ---- */

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

enum role { CLIENT, WORKER, IDLER };

struct link {
    int fd, number;
    enum role role;
    bool asleep, waits_for_room;
    int unanswered;           /* client: jobs under way that count against the limit */
    int finished;             /* worker: jobs that were answered since the last grant of credit */
    struct ring ring;         /* client: numbers of jobs not yet created; worker: times of grabs not yet answered */
    struct pipe_of_bytes in, out;
};

extern struct link *links;
extern int link_count;

void ring_put(struct ring *ring, uint64_t value);
bool ring_take(struct ring *ring, uint64_t *value);
unsigned char *make_room(struct pipe_of_bytes *p, size_t size);
void add_bytes(struct link *link, const void *bytes, size_t size);
void push_out(struct link *link);
int dial(void);
void allow_links(long count);
struct link *open_link(enum role role, int depth);
void watch_link(struct link *link);
void close_links(bool at_once);

/* The protocol: takes one message from the front of what has come, and gives its size (0: not whole yet) ... */
extern size_t (*take_message)(struct link *link, const unsigned char *at, size_t size, uint64_t now);
/* ... and what is to be sent after everything that came together has been taken. */
extern void (*after_messages)(struct link *link, uint64_t now);

void start_clock(void);
bool serve_until(const uint64_t *counter, uint64_t goal);

#endif
