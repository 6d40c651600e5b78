/*
 * gearblast: a load generator for Gearman job servers on this machine.
 *
 * It drives one workload against a server on 127.0.0.1, follows every single job through its life, and prints one JSON
 * object with what it saw.
 *
 *   background   clients submit background jobs, each keeping K submissions unanswered;
 *                latency: SUBMIT_JOB_BG sent -> JOB_CREATED read
 *   drain        the queue is filled first (not timed), then workers empty it, each keeping K grabs unanswered;
 *                latency: GRAB_JOB sent -> JOB_ASSIGN read
 *   foreground   clients submit foreground jobs, K unanswered each, and this program's own workers, which sleep
 *                and wake as the protocol demands, do them; latency: SUBMIT_JOB sent -> WORK_COMPLETE read
 *   pass         the same with background jobs; latency: SUBMIT_JOB_BG sent -> JOB_ASSIGN read by a worker
 *   depth        the queue is filled (not timed), then so many more are submitted, then as many drained: both are timed
 *   crowd        all workers sleep; one client submits one job at a time, and each next one only when its
 *                predecessor has ended and every worker that was woken is asleep again; latency as in foreground
 *
 * The clock runs from the first request until the last answer was read and every connection has answered a final
 * echo, so that requests which have no answer of their own (WORK_COMPLETE) are paid for inside the timed part.
 *
 * Exit status: 0 every job was answered exactly once; 1 something was lost, doubled, refused or late (the JSON
 * object says what); 2 wrong usage, or no server there.
 *
 *   cc -O2 -Wall -Wextra -o build/gearblast gearblast.c blast.c && build/gearblast --help
 */
#define _GNU_SOURCE
#include "blast.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------ settings -- */

enum workload { BACKGROUND, DRAIN, FOREGROUND, PASS, DEPTH, CROWD, WORKLOADS };
static const char *const workload_names[] = {"background", "drain", "foreground", "pass", "depth", "crowd"};

#define MAX_FUNCTION 64
#define CLIENTS (1u << CLIENT)
#define WORKERS (1u << WORKER)
#define IDLERS (1u << IDLER)
#define BUSY (CLIENTS | WORKERS)
#define UNIQUE 36

static enum workload workload;
static const char *function = "gearblast";
static size_t function_size = 9;
static bool unique = true, echo;
static int credits;       /* 0: workers grab, sleep and wake; otherwise they are pushed jobs, so many ahead */
static int idle;
static long queued;       /* jobs that wait in the queue already */

static int client_depth;  /* submissions each client keeps unanswered in this phase */
static uint64_t may_send; /* submissions up to the end of this phase */
static int awake;         /* workers that have not gone to sleep */
static struct link *lone_client;

static bool is_foreground(void)
{
    return workload == FOREGROUND || workload == CROWD;
}

static bool is_draining(void) /* workers empty a queue, and never wait for a job */
{
    return workload == DRAIN || workload == DEPTH;
}

/* ------------------------------------------------------------------------------------------------- packets -- */

enum packet {
    P_CAN_DO = 1, P_PRE_SLEEP = 4, P_NOOP = 6, P_SUBMIT_JOB = 7, P_JOB_CREATED = 8, P_GRAB_JOB = 9, P_NO_JOB = 10,
    P_JOB_ASSIGN = 11, P_WORK_COMPLETE = 13, P_ECHO_REQ = 16, P_ECHO_RES = 17, P_SUBMIT_JOB_BG = 18, P_ERROR = 19,
    P_OPTION_REQ = 26, P_OPTION_RES = 27, P_CREDIT = 1007, P_JOB_PUSH = 1008,
};
#define HEADER 12
#define PUSH_WORDS 7 /* of a JOB_PUSH, before the payload */

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

/* Sends a request over a link that is still blocking; whether the expected answer came. */
static bool ask(struct link *link, enum packet request, enum packet answer, const char *text)
{
    size_t size = strlen(text);
    unsigned char got[HEADER + 64], wanted[HEADER + 64] = "\0RES";
    memcpy(begin(link, request, size), text, size);
    push_out(link);
    put_number(wanted + 4, answer);
    put_number(wanted + 8, (uint32_t)size);
    memcpy(wanted + HEADER, text, size);
    return recv(link->fd, got, HEADER + size, MSG_WAITALL) == (ssize_t)(HEADER + size)
           && memcmp(got, wanted, HEADER + size) == 0;
}

/* Opens a link and waits for the answer to an echo, so that the server has surely accepted and set it up: the
 * accept queue never overflows, and nothing of this falls into the timed part. */
static struct link *connect_link(enum role role, int depth)
{
    struct link *link = open_link(role, depth);
    if (!ask(link, P_ECHO_REQ, P_ECHO_RES, "hi"))
        give_up("the server does not answer ECHO_REQ as a Gearman server does");
    if (role == WORKER && credits && !ask(link, P_OPTION_REQ, P_OPTION_RES, "switchgear"))
        give_up("the server does not know the extension that --push needs");
    watch_link(link);
    return link;
}

/* ------------------------------------------------------------------------------------------------- clients -- */

static unsigned char *submission; /* a whole SUBMIT packet; only the unique id and the tag change */
static size_t submission_size, unique_at, payload_at;

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

static void prepare_submission(void)
{
    unsigned char *p;
    unique_at = HEADER + function_size + 1;
    payload_at = unique_at + (unique ? UNIQUE : 0) + 1;
    submission_size = payload_at + want.payload;
    p = submission = need(calloc(1, submission_size));
    memcpy(p, "\0REQ", 4);
    put_number(p + 4, is_foreground() ? P_SUBMIT_JOB : P_SUBMIT_JOB_BG);
    put_number(p + 8, (uint32_t)(submission_size - HEADER));
    memcpy(p + HEADER, function, function_size);
    write_payload(p + payload_at, want.payload);
}

static void submit_up_to(struct link *link, int depth, uint64_t now)
{
    while (link->unanswered < depth && tally.sent < may_send) {
        uint64_t id = tally.sent++;
        unsigned char *to = make_room(&link->out, submission_size);
        memcpy(to, submission, submission_size);
        if (unique)
            write_unique(to + unique_at, id);
        write_tag(to + payload_at, id);
        link->out.last += submission_size;
        ring_put(&link->ring, id);
        link->unanswered++;
        ledger[id] = (struct job){.sent_at = now, .owner = link->number, .marks = SENT};
    }
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

static void client_got_created(struct link *link, const unsigned char *body, size_t size, uint64_t now)
{
    uint64_t id;
    if (!ring_take(&link->ring, &id)) {
        complain("JOB_CREATED without a submission");
        return;
    }
    ledger[id].handle = fingerprint(body, size);
    ledger[id].marks |= CREATED;
    tally.created++;
    if (!is_foreground()) {
        link->unanswered--;
        if (workload != PASS)
            note_latency(now - ledger[id].sent_at);
    }
}

static void client_got_result(struct link *link, const unsigned char *body, size_t size, uint64_t now)
{
    const unsigned char *end = memchr(body, 0, size);
    size_t expected = echo ? want.payload : TAG;
    long id = end && (size_t)(body + size - end) == expected + 1 ? read_payload(end + 1, expected) : -1;
    if (id < 0) {
        complain("WORK_COMPLETE with a result that no worker gave");
    } else if (ledger[id].owner != link->number) {
        complain("the result of job %ld went to another client", id);
    } else if (!(ledger[id].marks & CREATED)) {
        complain("the result of job %ld came before its JOB_CREATED", id);
    } else if (ledger[id].handle != fingerprint(body, (size_t)(end - body))) {
        complain("the result of job %ld came under another handle", id);
    } else if (mark_once((uint64_t)id, FINISHED, "finished")) {
        tally.finished++;
        link->unanswered--;
        note_latency(now - ledger[id].sent_at);
    }
}

static void client_got(struct link *link, uint32_t type, const unsigned char *body, size_t size, uint64_t now)
{
    if (type == P_JOB_CREATED)
        client_got_created(link, body, size, now);
    else if (type == P_WORK_COMPLETE && is_foreground())
        client_got_result(link, body, size, now);
    else if (type == P_ECHO_RES)
        tally.echoed++;
    else
        complain_of_packet("client", type, body, size);
}

/* ------------------------------------------------------------------------------------------------- workers -- */

static uint32_t grab_depth(void)
{
    return is_draining() ? (uint32_t)want.outstanding : 1;
}

static void grab_up_to(struct link *link, uint32_t depth, uint64_t now)
{
    while (link->ring.count < depth) {
        if (is_draining()) {
            if (!tally.grabs_left)
                return;
            tally.grabs_left--;
        }
        begin(link, P_GRAB_JOB, 0);
        ring_put(&link->ring, now);
    }
}

/* More jobs may be pushed.  A worker's number of unanswered requests is the credit that the server has not used yet. */
static void grant(struct link *link, int more)
{
    char words[32];
    size_t size = (size_t)snprintf(words, sizeof words, "%d", more) + 1; /* a NUL, and no lease */
    words[size++] = '0';
    memcpy(begin(link, P_CREDIT, size), words, size);
    link->unanswered += more;
}

static void do_job(struct link *link, const unsigned char *handle, size_t handle_size, const unsigned char *payload,
                   long id, uint64_t asked, uint64_t now)
{
    size_t result = echo ? want.payload : TAG;
    unsigned char *to;
    if (!mark_once((uint64_t)id, ASSIGNED, "assigned"))
        return;
    tally.assigned++;
    if (workload == PASS)
        note_latency(now - ledger[id].sent_at);
    else if (is_draining() && !credits)
        note_latency(now - asked);
    to = begin(link, P_WORK_COMPLETE, handle_size + 1 + result);
    memcpy(to, handle, handle_size + 1);
    memcpy(to + handle_size + 1, payload, result);
}

static bool is_our_function(const unsigned char *at, size_t size)
{
    return size == function_size && memcmp(at, function, size) == 0;
}

static void worker_got_assignment(struct link *link, const unsigned char *body, size_t size, uint64_t asked,
                                  uint64_t now)
{
    const unsigned char *end = body + size, *name, *payload = NULL;
    long id;
    if ((name = memchr(body, 0, size)) != NULL)
        payload = memchr(name + 1, 0, (size_t)(end - name - 1));
    if (!payload || !is_our_function(name + 1, (size_t)(payload - name - 1))
        || (size_t)(end - payload - 1) != want.payload || (id = read_payload(payload + 1, want.payload)) < 0) {
        complain("JOB_ASSIGN of a job that is none of ours");
        return;
    }
    do_job(link, body, (size_t)(name - body), payload + 1, id, asked, now);
    grab_up_to(link, grab_depth(), now); /* leaves in the same write as the result */
}

/* JOB_PUSH: handle, function, unique, attempt, losses, attempts limit, timeout, payload. */
static void worker_got_push(struct link *link, const unsigned char *body, size_t size, uint64_t now)
{
    const unsigned char *word[PUSH_WORDS + 1] = {body}, *end = body + size;
    unsigned char expected[UNIQUE];
    size_t unique_size;
    long id = -1;
    for (int i = 0; i < PUSH_WORDS; i++) {
        const unsigned char *stop = memchr(word[i], 0, (size_t)(end - word[i]));
        if (!stop) {
            complain("JOB_PUSH with too few arguments");
            return;
        }
        word[i + 1] = stop + 1;
    }
    if (is_our_function(word[1], (size_t)(word[2] - word[1] - 1)) && (size_t)(end - word[PUSH_WORDS]) == want.payload)
        id = read_payload(word[PUSH_WORDS], want.payload);
    if (id < 0) {
        complain("JOB_PUSH of a job that is none of ours");
        return;
    }
    unique_size = (size_t)(word[3] - word[2] - 1);
    write_unique(expected, (uint64_t)id);
    if (unique_size != (unique ? UNIQUE : 0) || memcmp(word[2], expected, unique_size)) {
        complain("JOB_PUSH of job %ld with another unique id", id);
    } else if (strcmp((const char *)word[3], "1")) {
        complain("JOB_PUSH of job %ld says attempt %.10s", id, (const char *)word[3]);
    } else if (link->unanswered == 0) {
        complain("a worker was pushed more jobs than it gave credit for");
    } else {
        link->unanswered--;
        link->finished++;
        do_job(link, body, (size_t)(word[1] - body - 1), word[PUSH_WORDS], id, now, now);
    }
}

static void worker_got(struct link *link, uint32_t type, const unsigned char *body, size_t size, uint64_t now)
{
    uint64_t asked = now;
    if ((type == P_JOB_ASSIGN || type == P_NO_JOB) && !ring_take(&link->ring, &asked)) {
        complain("%s without a GRAB_JOB", type == P_NO_JOB ? "NO_JOB" : "JOB_ASSIGN");
    } else if (type == P_JOB_ASSIGN) {
        worker_got_assignment(link, body, size, asked, now);
    } else if (type == P_JOB_PUSH && credits) {
        worker_got_push(link, body, size, now);
    } else if (type == P_NO_JOB) {
        tally.no_jobs++;
        if (is_draining())
            tally.grabs_left++;
        if (!link->ring.count && !link->asleep) {
            begin(link, P_PRE_SLEEP, 0);
            link->asleep = true;
            awake--;
        }
    } else if (type == P_NOOP) {
        tally.noops++;
        if (link->asleep) {
            link->asleep = false;
            awake++;
            grab_up_to(link, grab_depth(), now);
        }
    } else if (type == P_ECHO_RES) {
        tally.echoed++;
    } else {
        complain_of_packet("worker", type, body, size);
    }
}

/* ------------------------------------------------------------------------------------------- both together -- */

static size_t take_packet(struct link *link, const unsigned char *packet, size_t size, uint64_t now)
{
    uint32_t type, body;
    if (size < HEADER)
        return 0;
    type = get_number(packet + 4);
    body = get_number(packet + 8);
    if (memcmp(packet, "\0RES", 4)) {
        complain("bytes from the server that are no packet");
        return 0;
    }
    if (body > MOST_PAYLOAD + 1024) {
        complain("packet of %u bytes from the server", (unsigned)body);
        return 0;
    }
    if (size - HEADER < body)
        return 0;
    (link->role == WORKER ? worker_got : client_got)(link, type, packet + HEADER, body, now);
    return HEADER + (size_t)body;
}

static void after_packets(struct link *link, uint64_t now)
{
    if (link->finished) { /* one credit for all that ended together */
        grant(link, link->finished);
        link->finished = 0;
    }
    if (workload != CROWD) {
        if (link->role == CLIENT)
            submit_up_to(link, client_depth, now);
    } else if (lone_client && awake == 0 && lone_client->unanswered == 0) {
        push_out(link); /* PRE_SLEEP before the next job, else it would find that job and count as woken */
        submit_up_to(lone_client, 1, now);
        push_out(lone_client);
    }
}

/* One echo on every link of some roles: when all have come back, the server has worked off everything that was sent
 * before over them. */
static bool settle(unsigned roles)
{
    uint64_t goal = tally.echoed;
    for (int i = 0; i < link_count; i++) {
        if (!(roles & 1u << links[i].role))
            continue;
        goal++;
        begin(&links[i], P_ECHO_REQ, 0);
        push_out(&links[i]);
    }
    return serve_until(&tally.echoed, goal);
}

/* The same after a crowd has worked, without waking those who slept. */
static bool settle_crowd(void)
{
    while (awake && serve_until(&tally.no_jobs, tally.no_jobs + 1))
        ;
    return !fault[0] && settle(CLIENTS);
}

static void start_clients(void)
{
    for (int i = 0; i < link_count; i++) {
        if (links[i].role == CLIENT) {
            submit_up_to(&links[i], client_depth, now_ns());
            push_out(&links[i]);
        }
    }
}

static void start_workers(void)
{
    for (int i = 0; i < link_count; i++) {
        if (links[i].role == WORKER) {
            if (credits)
                grant(&links[i], credits);
            else
                grab_up_to(&links[i], grab_depth(), now_ns());
            push_out(&links[i]);
        }
    }
}

static void connect_clients(int count, int depth)
{
    client_depth = depth;
    for (int i = 0; i < count; i++)
        lone_client = connect_link(CLIENT, depth);
}

static void connect_workers(void)
{
    for (int i = 0; i < want.workers; i++) {
        struct link *link = connect_link(WORKER, (int)grab_depth());
        memcpy(begin(link, P_CAN_DO, function_size), function, function_size);
    }
    awake = credits ? 0 : want.workers;
}

static void connect_idle(void)
{
    for (int i = 0; i < idle; i++)
        connect_link(IDLER, 1);
}

/* --------------------------------------------------------------------------------------------------- parts -- */

/* Puts so many jobs into the queue, over connections that are closed then. */
static bool fill(uint64_t count)
{
    if (!count)
        return true;
    connect_clients(FILLER_LINKS, FILLER_DEPTH);
    may_send = count;
    start_clients();
    if (!serve_until(&tally.created, count) || !settle(BUSY))
        return false;
    close_links(false);
    lone_client = NULL;
    return true;
}

static void time_submissions(struct figures *figures)
{
    uint64_t before = tally.created, goal = before + (uint64_t)want.jobs;
    connect_idle();
    connect_clients(want.clients, want.outstanding);
    may_send = goal;
    begin_figures(figures);
    start_clients();
    if (serve_until(&tally.created, goal))
        settle(BUSY);
    end_figures(figures, tally.created - before);
}

static void time_drain(struct figures *figures)
{
    connect_idle();
    connect_workers();
    if (!settle(BUSY))
        return;
    tally.grabs_left = (uint64_t)want.jobs;
    begin_figures(figures);
    start_workers();
    if (serve_until(&tally.assigned, (uint64_t)want.jobs))
        settle(BUSY);
    end_figures(figures, tally.assigned);
}

/* Workers wait, and do what clients submit. */
static void time_work(struct figures *figures)
{
    uint64_t jobs = (uint64_t)want.jobs;
    connect_idle();
    connect_workers();
    start_workers();
    if (!settle(BUSY) || !settle(BUSY)) /* the second round: PRE_SLEEP has arrived, too */
        return;
    if (awake) {
        complain("%d workers were not sent to sleep", awake);
        return;
    }
    connect_clients(want.clients, want.outstanding);
    tally.noops = tally.no_jobs = 0;
    may_send = jobs;
    begin_figures(figures);
    start_clients();
    if (serve_until(is_foreground() ? &tally.finished : &tally.assigned, jobs) && serve_until(&tally.created, jobs))
        workload == CROWD ? settle_crowd() : settle(BUSY);
    end_figures(figures, is_foreground() ? tally.finished : tally.assigned);
}

/* ---------------------------------------------------------------------------------------------------- main -- */

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
                    if (strncmp(line, function, function_size) == 0 && line[function_size] == '\t')
                        total = strtol(line + function_size + 1, NULL, 10);
                break;
            }
        }
    }
    close(fd);
    free(text.base);
    return total;
}

/* The server must now hold exactly what it should. */
static long check_server(long expected)
{
    static const struct timespec moment = {.tv_nsec = 50 * 1000 * 1000};
    long left = -1;
    check_handles(tally.sent);
    for (int tries = 0; tries < 40 && (left = jobs_in_server()) != expected; tries++)
        nanosleep(&moment, NULL);
    if (left != expected)
        complain("the server says that it holds %ld jobs where %ld are expected", left, expected);
    return left;
}

static uint64_t count_unanswered(void)
{
    uint64_t total = (uint64_t)(queued + want.jobs);
    if (is_foreground())
        return count_without(FINISHED, total);
    return count_without(CREATED, total) + (workload == BACKGROUND ? 0 : (uint64_t)want.jobs - tally.assigned);
}

static const char usage[] =
    "usage: gearblast [options] background|drain|foreground|pass|depth|crowd\n"
    "  --host 127.0.0.1   the server's address; no other is allowed\n"
    "  --port N           its port (4730)\n"
    "  --clients N        client connections (64; in crowd 1)\n"
    "  --workers N        worker connections (64)\n"
    "  --jobs N           jobs (100000)\n"
    "  --outstanding N    unanswered submissions per client; drain: unanswered grabs per worker (1)\n"
    "  --payload N        bytes of payload, 16 or more (100)\n"
    "  --echo             results are the whole payload, not its first 16 bytes\n"
    "  --push N           workers do not grab: they give credit for N jobs, which are pushed to them\n"
    "  --queued N         background, drain, depth: this many other jobs are in the queue (0)\n"
    "  --idle N           other connections, open and silent meanwhile (0)\n"
    "  --no-unique        send no unique ids; otherwise every job has its own of 36 bytes\n"
    "  --function NAME    name of the function (gearblast)\n"
    "  --pid N            a process of the server, to report its CPU time and memory; may be repeated\n"
    "  --patience N       give up after N seconds without progress (10)\n"
    "  --limit N          give up after N seconds in all (120)\n";

static void set_function(const char *name)
{
    function = name;
    function_size = strlen(name);
    if (!function_size || function_size > MAX_FUNCTION || strpbrk(name, "\t\n\"\\"))
        give_up("--function must be a name of 1 to %d plain characters", MAX_FUNCTION);
}

static void set_workload(const char *name)
{
    int which = 0;
    while (which < WORKLOADS && strcmp(name, workload_names[which]))
        which++;
    if (which == WORKLOADS)
        give_up("no workload \"%s\": background, drain, foreground, pass, depth or crowd", name);
    workload = (enum workload)which;
    if (queued && workload != BACKGROUND && !is_draining())
        give_up("--queued goes with background, drain and depth only");
    if (workload == CROWD)
        want.clients = want.outstanding = 1;
}

static void read_options(int argc, char **argv)
{
    enum {
        HOST = 256, PORT, CLIENT_LINKS, WORKER_LINKS, JOBS, OUTSTANDING, PAYLOAD, ECHO_BACK, PUSH, QUEUED, IDLE, NO_UNIQUE, FUNCTION,
        PID, PATIENCE, LIMIT,
    };
    static const struct option known[] = {
        {"host", 1, NULL, HOST}, {"port", 1, NULL, PORT}, {"clients", 1, NULL, CLIENT_LINKS},
        {"workers", 1, NULL, WORKER_LINKS}, {"jobs", 1, NULL, JOBS}, {"outstanding", 1, NULL, OUTSTANDING},
        {"payload", 1, NULL, PAYLOAD}, {"echo", 0, NULL, ECHO_BACK}, {"push", 1, NULL, PUSH},
        {"queued", 1, NULL, QUEUED}, {"idle", 1, NULL, IDLE}, {"no-unique", 0, NULL, NO_UNIQUE},
        {"function", 1, NULL, FUNCTION}, {"pid", 1, NULL, PID}, {"patience", 1, NULL, PATIENCE},
        {"limit", 1, NULL, LIMIT}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int option, which;
    while ((option = getopt_long(argc, argv, "h", known, &which)) != -1) {
        const char *name = option >= HOST ? known[which].name : "";
        switch (option) {
        case HOST: check_host(optarg); break;
        case PORT: want.port = (int)number(name, optarg, 1, 65535); break;
        case CLIENT_LINKS: want.clients = (int)number(name, optarg, 1, MOST_LINKS); break;
        case WORKER_LINKS: want.workers = (int)number(name, optarg, 1, MOST_LINKS); break;
        case JOBS: want.jobs = number(name, optarg, 1, MOST_JOBS); break;
        case OUTSTANDING: want.outstanding = (int)number(name, optarg, 1, 4096); break;
        case PAYLOAD: want.payload = (size_t)number(name, optarg, TAG, MOST_PAYLOAD); break;
        case ECHO_BACK: echo = true; break;
        case PUSH: credits = (int)number(name, optarg, 1, 10000); break;
        case QUEUED: queued = number(name, optarg, 0, MOST_JOBS); break;
        case IDLE: idle = (int)number(name, optarg, 0, MOST_LINKS); break;
        case NO_UNIQUE: unique = false; break;
        case FUNCTION: set_function(optarg); break;
        case PID: add_pid(number(name, optarg, 1, MOST_PID)); break;
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
    set_workload(argv[optind]);
}

int main(int argc, char **argv)
{
    struct figures figures = {0}, drained = {0};
    uint64_t unanswered;
    long empty, filled, left = -1;

    want.program = "gearblast";
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    make_ledger(queued + want.jobs);
    allow_links((long)want.clients + want.workers + idle + FILLER_LINKS);
    take_message = take_packet;
    after_messages = after_packets;
    start_clock();
    prepare_submission();
    empty = server_memory_kb("VmRSS");

    if (fill((uint64_t)queued + (workload == DRAIN ? (uint64_t)want.jobs : 0))) {
        filled = server_memory_kb("VmRSS");
        if (workload == BACKGROUND || workload == DEPTH)
            time_submissions(&figures);
        else if (workload == DRAIN)
            time_drain(&figures);
        else
            time_work(&figures);
        if (workload == DEPTH && !fault[0]) {
            close_links(false);
            time_drain(&drained);
        }
        if (idle && !fault[0])
            settle(CLIENTS | WORKERS | IDLERS); /* the silent ones must still be there */
    } else {
        filled = empty;
    }
    if (!fault[0])
        left = check_server(workload == BACKGROUND ? queued + want.jobs : queued);
    unanswered = count_unanswered();
    if (unanswered)
        complain("%llu jobs were not answered", (unsigned long long)unanswered);

    printf("{\"workload\": \"%s\", \"clients\": %d, \"workers\": %d, \"outstanding\": %d, \"payload\": %zu, "
           "\"unique\": %s, \"push\": %d, \"queued\": %ld, \"idle\": %d, ",
           workload_names[workload], workload == DRAIN ? 0 : want.clients, workload == BACKGROUND ? 0 : want.workers,
           want.outstanding, want.payload, unique ? "true" : "false", credits, queued, idle);
    print_figures(&figures);
    if (workload == DEPTH) {
        printf("\"drained\": {");
        print_figures(&drained);
        printf("\"workers\": %d}, ", want.workers);
    }
    if (want.pid_count)
        printf("\"server_rss_empty_kb\": %ld, \"server_rss_filled_kb\": %ld, \"server_rss_peak_kb\": %ld, ", empty, filled,
               server_memory_kb("VmHWM"));
    printf("\"noops\": %llu, \"no_jobs\": %llu, ", (unsigned long long)tally.noops, (unsigned long long)tally.no_jobs);
    print_end(left, unanswered);
    close_links(link_count > FEW_LINKS);
    return fault[0] ? 1 : 0;
}
