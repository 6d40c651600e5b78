/*
 * beanblast: a load generator for beanstalkd on this machine, with the same checks as gearblast.
 *
 *   background   producers put jobs, each keeping K puts unanswered; latency: put sent -> INSERTED read
 *   drain        the tube is filled first (not timed), then workers reserve and delete every job, each keeping K
 *                reservations unanswered; latency: reserve sent -> RESERVED read
 *   pass         producers put while workers wait in reserve, one job at a time each; latency: put sent -> RESERVED read
 *
 * A delete leaves in the same write as the next reserve.  The clock runs from the first request until the last answer
 * was read; in drain and pass that is the last DELETED.
 *
 * Every payload carries the number of the job and a stamp of the run.  Every job must be inserted once, under an id
 * that no other job has, be reserved once, byte for byte as it was put, and be deleted once; afterwards the server is
 * asked (stats-tube) whether it holds exactly the jobs it should.
 *
 * Exit status: 0 all well; 1 something was lost, doubled, refused or late (the JSON object says what); 2 wrong usage,
 * or no server there.
 *
 *   cc -O2 -Wall -Wextra -o build/beanblast beanblast.c blast.c && build/beanblast --help
 */
#define _GNU_SOURCE
#include "blast.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum workload { BACKGROUND, DRAIN, PASS, WORKLOADS };
static const char *const workload_names[] = {"background", "drain", "pass"};

#define TUBE "default"
#define TTR_SECONDS 600 /* longer than any run: a job that comes back by itself would look doubled */
#define MAX_LINE 256

static enum workload workload;
static int client_depth;
static uint64_t may_send;

/* -------------------------------------------------------------------------------------------------- lines -- */

/* A whole line at the front: its length without CR LF, or -1. */
static long line_size(const unsigned char *at, size_t size)
{
    const unsigned char *end = memchr(at, '\n', size < MAX_LINE ? size : MAX_LINE);
    if (!end) {
        if (size >= MAX_LINE)
            complain("a line without end from the server");
        return -1;
    }
    if (end == at || end[-1] != '\r') {
        complain("a line from the server that does not end with CR LF");
        return -1;
    }
    return end - at - 1;
}

static void complain_of_line(const char *who, const unsigned char *at, size_t size)
{
    complain("\"%.*s\" to a %s, which nobody asked for", (int)size, (const char *)at, who);
}

/* ----------------------------------------------------------------------------------------------- producers -- */

static unsigned char *submission; /* a whole put; only the tag changes */
static size_t submission_size, payload_at;

static void prepare_submission(void)
{
    char line[80];
    payload_at = (size_t)snprintf(line, sizeof line, "put 1024 0 %d %zu\r\n", TTR_SECONDS, want.payload);
    submission_size = payload_at + want.payload + 2;
    submission = need(malloc(submission_size));
    memcpy(submission, line, payload_at);
    write_payload(submission + payload_at, want.payload);
    memcpy(submission + payload_at + want.payload, "\r\n", 2);
}

static void submit_up_to(struct link *link, int depth, uint64_t now)
{
    while (link->unanswered < depth && tally.sent < may_send) {
        uint64_t id = tally.sent++;
        write_tag(submission + payload_at, id);
        add_bytes(link, submission, submission_size);
        ring_put(&link->ring, id);
        link->unanswered++;
        ledger[id] = (struct job){.sent_at = now, .owner = link->number, .marks = SENT};
    }
}

static size_t producer_takes(struct link *link, const unsigned char *at, size_t size, uint64_t now)
{
    static const char inserted[] = "INSERTED ";
    long line = line_size(at, size);
    uint64_t id;
    if (line < 0)
        return 0;
    if (strncmp((const char *)at, inserted, sizeof inserted - 1) || !ring_take(&link->ring, &id)) {
        complain_of_line("producer", at, (size_t)line);
        return 0;
    }
    at += sizeof inserted - 1;
    ledger[id].handle = fingerprint(at, (size_t)line - (sizeof inserted - 1));
    ledger[id].marks |= CREATED;
    tally.created++;
    link->unanswered--;
    if (workload != PASS)
        note_latency(now - ledger[id].sent_at);
    return (size_t)line + 2;
}

/* ------------------------------------------------------------------------------------------------- workers -- */

static void reserve_up_to(struct link *link, uint32_t depth, uint64_t now)
{
    while (link->ring.count < depth && tally.grabs_left) {
        tally.grabs_left--;
        add_bytes(link, "reserve\r\n", 9);
        ring_put(&link->ring, now);
    }
}

static uint32_t reserve_depth(void)
{
    return workload == DRAIN ? (uint32_t)want.outstanding : 1;
}

/* RESERVED ID BYTES, a line, and the payload, another.  A worker's unanswered requests are its deletes. */
static size_t worker_takes_job(struct link *link, const unsigned char *at, size_t size, size_t line, uint64_t now)
{
    const unsigned char *payload = at + line + 2;
    unsigned long long number = 0;
    size_t bytes = 0;
    uint64_t asked;
    char text[MAX_LINE + 1], delete[64];
    long id;
    memcpy(text, at, line);
    text[line] = 0;
    if (sscanf(text, "RESERVED %llu %zu", &number, &bytes) != 2 || bytes != want.payload) {
        complain("a reserved job that is none of ours: %.60s", text);
        return 0;
    }
    if (size < line + 2 + bytes + 2)
        return 0;
    if (!ring_take(&link->ring, &asked)) {
        complain("RESERVED without a reserve");
        return 0;
    }
    if (memcmp(payload + bytes, "\r\n", 2) || (id = read_payload(payload, bytes)) < 0) {
        complain("a reserved job that is none of ours: %.60s", text);
        return 0;
    }
    if (!mark_once((uint64_t)id, ASSIGNED, "reserved"))
        return 0;
    tally.assigned++;
    note_latency(now - (workload == PASS ? ledger[id].sent_at : asked));
    add_bytes(link, delete, (size_t)snprintf(delete, sizeof delete, "delete %llu\r\n", number));
    link->unanswered++;
    reserve_up_to(link, reserve_depth(), now); /* leaves in the same write */
    return line + 2 + bytes + 2;
}

static size_t worker_takes(struct link *link, const unsigned char *at, size_t size, uint64_t now)
{
    long line = line_size(at, size);
    if (line < 0)
        return 0;
    if (line > 9 && memcmp(at, "RESERVED ", 9) == 0)
        return worker_takes_job(link, at, size, (size_t)line, now);
    if (line == 7 && memcmp(at, "DELETED", 7) == 0 && link->unanswered > 0) {
        link->unanswered--;
        tally.finished++;
        return (size_t)line + 2;
    }
    complain_of_line("worker", at, (size_t)line);
    return 0;
}

/* --------------------------------------------------------------------------------------------------- parts -- */

static size_t take_answer(struct link *link, const unsigned char *at, size_t size, uint64_t now)
{
    return (link->role == WORKER ? worker_takes : producer_takes)(link, at, size, now);
}

static void after_answers(struct link *link, uint64_t now)
{
    if (link->role == CLIENT)
        submit_up_to(link, client_depth, now);
}

/* Opens a link and waits for an answer, so that the server has surely accepted it before anything is timed. */
static struct link *connect_link(enum role role, int depth)
{
    static const char question[] = "use " TUBE "\r\n", answer[] = "USING " TUBE "\r\n";
    char got[sizeof answer - 1];
    struct link *link = open_link(role, depth);
    if (send(link->fd, question, sizeof question - 1, MSG_NOSIGNAL) != (ssize_t)sizeof question - 1
        || recv(link->fd, got, sizeof got, MSG_WAITALL) != (ssize_t)sizeof got || memcmp(got, answer, sizeof got))
        give_up("the server does not answer as beanstalkd does");
    watch_link(link);
    return link;
}

static void connect_links(int clients, int workers, int depth)
{
    client_depth = depth;
    for (int i = 0; i < workers; i++)
        connect_link(WORKER, (int)reserve_depth());
    for (int i = 0; i < clients; i++)
        connect_link(CLIENT, depth);
}

static void start(enum role role)
{
    for (int i = 0; i < link_count; i++) {
        if (links[i].role != role)
            continue;
        if (role == CLIENT)
            submit_up_to(&links[i], client_depth, now_ns());
        else
            reserve_up_to(&links[i], reserve_depth(), now_ns());
        push_out(&links[i]);
    }
}

static bool fill(uint64_t count)
{
    connect_links(FILLER_LINKS, 0, FILLER_DEPTH);
    may_send = count;
    start(CLIENT);
    if (!serve_until(&tally.created, count))
        return false;
    close_links(false);
    return true;
}

static void time_workload(struct figures *figures)
{
    uint64_t jobs = (uint64_t)want.jobs;
    connect_links(workload == DRAIN ? 0 : want.clients, workload == BACKGROUND ? 0 : want.workers, want.outstanding);
    may_send = tally.grabs_left = jobs;
    if (workload == PASS)
        start(WORKER); /* they wait in reserve */
    begin_figures(figures);
    start(workload == DRAIN ? WORKER : CLIENT);
    if (serve_until(&tally.created, jobs) && workload != BACKGROUND)
        serve_until(&tally.finished, jobs);
    end_figures(figures, workload == BACKGROUND ? tally.created : tally.finished);
}

/* ---------------------------------------------------------------------------------------------------- main -- */

/* A figure of the tube's statistics; -1 if the server gives no sense. */
static long tube_figure(const char *name)
{
    static const char question[] = "stats-tube " TUBE "\r\n";
    char text[4096], *at;
    size_t size = 0;
    long value = -1;
    int fd = dial();
    if (send(fd, question, sizeof question - 1, MSG_NOSIGNAL) == (ssize_t)sizeof question - 1) {
        ssize_t n;
        do {
            n = recv(fd, text + size, sizeof text - 1 - size, 0);
            size += n > 0 ? (size_t)n : 0;
            text[size] = 0;
        } while (n > 0 && size < sizeof text - 1 && !strstr(text, "\n\r\n"));
        if (strncmp(text, "OK ", 3) == 0 && (at = strstr(text, name)) != NULL)
            value = strtol(at + strlen(name), NULL, 10);
    }
    close(fd);
    return value;
}

static long check_server(long expected)
{
    static const struct timespec moment = {.tv_nsec = 50 * 1000 * 1000};
    long left = -1;
    check_handles(tally.sent);
    for (int tries = 0; tries < 40; tries++) {
        left = tube_figure("current-jobs-ready: ") + tube_figure("current-jobs-reserved: ");
        if (left == expected)
            return left;
        nanosleep(&moment, NULL);
    }
    complain("the server says that it holds %ld jobs where %ld are expected", left, expected);
    return left;
}

static const char usage[] =
    "usage: beanblast [options] background|drain|pass\n"
    "  --host 127.0.0.1   the server's address; no other is allowed\n"
    "  --port N           its port (11300)\n"
    "  --clients N        connections that put (64)\n"
    "  --workers N        connections that reserve and delete (64)\n"
    "  --jobs N           jobs (100000)\n"
    "  --outstanding N    unanswered puts per client; drain: unanswered reserves per worker (1)\n"
    "  --payload N        bytes of payload, 16 or more (100)\n"
    "  --pid N            a process of the server, to report its CPU time and memory; may be repeated\n"
    "  --patience N       give up after N seconds without progress (10)\n"
    "  --limit N          give up after N seconds in all (120)\n";

static void set_workload(const char *name)
{
    int which = 0;
    while (which < WORKLOADS && strcmp(name, workload_names[which]))
        which++;
    if (which == WORKLOADS)
        give_up("no workload \"%s\": background, drain or pass", name);
    workload = (enum workload)which;
}

static void read_options(int argc, char **argv)
{
    enum { HOST = 256, PORT, CLIENTS, WORKERS, JOBS, OUTSTANDING, PAYLOAD, PID, PATIENCE, LIMIT };
    static const struct option known[] = {
        {"host", 1, NULL, HOST}, {"port", 1, NULL, PORT}, {"clients", 1, NULL, CLIENTS},
        {"workers", 1, NULL, WORKERS}, {"jobs", 1, NULL, JOBS}, {"outstanding", 1, NULL, OUTSTANDING},
        {"payload", 1, NULL, PAYLOAD}, {"pid", 1, NULL, PID}, {"patience", 1, NULL, PATIENCE},
        {"limit", 1, NULL, LIMIT}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int option, which;
    while ((option = getopt_long(argc, argv, "h", known, &which)) != -1) {
        const char *name = option >= HOST ? known[which].name : "";
        switch (option) {
        case HOST: check_host(optarg); break;
        case PORT: want.port = (int)number(name, optarg, 1, 65535); break;
        case CLIENTS: want.clients = (int)number(name, optarg, 1, MOST_LINKS); break;
        case WORKERS: want.workers = (int)number(name, optarg, 1, MOST_LINKS); break;
        case JOBS: want.jobs = number(name, optarg, 1, MOST_JOBS); break;
        case OUTSTANDING: want.outstanding = (int)number(name, optarg, 1, 4096); break;
        case PAYLOAD: want.payload = (size_t)number(name, optarg, TAG, MOST_PAYLOAD); break;
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
    struct figures figures = {0};
    uint64_t unanswered;
    long empty, left = -1;

    want.program = "beanblast";
    want.port = 11300;
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    make_ledger(want.jobs);
    allow_links((long)want.clients + want.workers + FILLER_LINKS);
    take_message = take_answer;
    after_messages = after_answers;
    start_clock();
    prepare_submission();
    empty = server_memory_kb("VmRSS");

    if (workload != DRAIN || fill((uint64_t)want.jobs))
        time_workload(&figures);
    if (!fault[0])
        left = check_server(workload == BACKGROUND ? want.jobs : 0);
    unanswered = count_without(workload == BACKGROUND ? CREATED : ASSIGNED, (uint64_t)want.jobs);
    if (unanswered)
        complain("%llu jobs were not answered", (unsigned long long)unanswered);

    printf("{\"workload\": \"%s\", \"clients\": %d, \"workers\": %d, \"outstanding\": %d, \"payload\": %zu, ",
           workload_names[workload], workload == DRAIN ? 0 : want.clients, workload == BACKGROUND ? 0 : want.workers,
           want.outstanding, want.payload);
    print_figures(&figures);
    if (want.pid_count)
        printf("\"server_rss_empty_kb\": %ld, \"server_rss_peak_kb\": %ld, ", empty, server_memory_kb("VmHWM"));
    print_end(left, unanswered);
    close_links(link_count > FEW_LINKS);
    return fault[0] ? 1 : 0;
}
