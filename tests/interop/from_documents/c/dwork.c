/* A dwork worker, from the document's text, with libzmq and no library for protocol buffers: HOST PORT NAME JOBS. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { STEAL = 1, COMPLETE, TRANSFER, NOT_FOUND = 5, OK, EXIT, LONGEST = 1 << 20, PAUSE_US = 20000 };
#define LOCATION "c-worker"

static void *server;
static uint8_t answer[LONGEST];
static uint8_t tasks[LONGEST]; /* the fields `task` of the last answer, as they came */
static size_t tasks_length;
static int tasks_count;

static uint64_t varint(const uint8_t **place) {
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*place)++;
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return number;
    }
}

/* Sends a query with the tasks of the last answer, or without; returns the type of the answer. */
static int ask(uint8_t type, int with_tasks) {
    static uint8_t query[LONGEST + 64];
    size_t length = 0;
    query[length++] = 1 << 3, query[length++] = type;
    if (with_tasks) memcpy(query + length, tasks, tasks_length), length += tasks_length;
    query[length++] = 6 << 3 | 2, query[length++] = sizeof LOCATION - 1;
    memcpy(query + length, LOCATION, sizeof LOCATION - 1), length += sizeof LOCATION - 1;
    if (zmq_send(server, query, length, 0) < 0) exit(1);
    int received = zmq_recv(server, answer, LONGEST, 0), answer_type = -1;
    if (received < 0 || received > LONGEST) exit(1);
    tasks_length = 0, tasks_count = 0;
    for (const uint8_t *place = answer; place < answer + received;) {
        const uint8_t *start = place;
        uint64_t key = varint(&place), value = varint(&place);
        if (key >> 3 == 1) answer_type = (int)value;
        if ((key & 7) == 2) place += value;
        if (key >> 3 != 2) continue;
        memcpy(tasks + tasks_length, start, (size_t)(place - start));
        tasks_length += (size_t)(place - start), tasks_count++;
    }
    return answer_type;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    char endpoint[256];
    snprintf(endpoint, sizeof endpoint, "tcp://%s:%s", argv[1], argv[2]);
    void *context = zmq_ctx_new();
    server = zmq_socket(context, ZMQ_REQ);
    if (zmq_connect(server, endpoint)) return 1;
    for (int jobs = atoi(argv[4]); jobs > 0;) {
        int type = ask(STEAL, 0);
        if (type == TRANSFER) {
            jobs -= tasks_count;
            if (ask(COMPLETE, 1) != OK) return 1;
        } else if (type == NOT_FOUND || type == EXIT) {
            usleep(PAUSE_US);
        } else {
            return 1;
        }
    }
    if (ask(EXIT, 0) != OK) return 1;
    zmq_close(server);
    return zmq_ctx_term(context);
}
