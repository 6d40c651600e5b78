/* A WMP worker, from docs/protocols/wmp.md, with libzmq and no library for msgpack: HOST PORT NAME JOBS. */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { LONGEST = 1 << 20, FIRST_PAUSE_MS = 100, LONGEST_PAUSE_MS = 10000 };

/* A piece of msgpack within a message: one value, as it came. */
struct value {
    const uint8_t *start;
    size_t length;
};

static void *dealer;
static uint8_t headers[65536];
static size_t headers_length;

static uint32_t big_endian(const uint8_t *place, int bytes) {
    uint32_t number = 0;
    while (bytes--) number = number << 8 | *place++;
    return number;
}

/* The byte after the value that begins here. */
static const uint8_t *after(const uint8_t *place) {
    uint8_t kind = *place++;
    uint32_t items = 0, length = 0;
    if (kind < 0x80 || kind >= 0xe0 || (kind >= 0xc0 && kind <= 0xc3)) return place;
    if (kind < 0x90) items = 2u * (kind & 15);
    else if (kind < 0xa0) items = kind & 15;
    else if (kind < 0xc0) length = kind & 31;
    else if (kind <= 0xc6) { int n = 1 << (kind - 0xc4); length = big_endian(place, n); place += n; }
    else if (kind == 0xca || kind == 0xcb) length = kind == 0xca ? 4 : 8;
    else if (kind >= 0xcc && kind <= 0xcf) length = 1u << (kind - 0xcc);
    else if (kind >= 0xd0 && kind <= 0xd3) length = 1u << (kind - 0xd0);
    else if (kind >= 0xd9 && kind <= 0xdb) { int n = 1 << (kind - 0xd9); length = big_endian(place, n); place += n; }
    else if (kind == 0xdc || kind == 0xdd) { int n = kind == 0xdc ? 2 : 4; items = big_endian(place, n); place += n; }
    else if (kind == 0xde || kind == 0xdf) { int n = kind == 0xde ? 2 : 4; items = 2 * big_endian(place, n); place += n; }
    else exit(3); /* extension types are not allowed */
    place += length;
    while (items--) place = after(place);
    return place;
}

static struct value find(const uint8_t *map, const char *key) {
    uint32_t pairs = *map >= 0xde ? big_endian(map + 1, *map == 0xde ? 2 : 4) : *map & 15u;
    const uint8_t *place = map + (*map == 0xde ? 3 : *map == 0xdf ? 5 : 1);
    while (pairs--) {
        const uint8_t *name = place, *content = after(place);
        place = after(content);
        size_t length = strlen(key);
        if (*name == (0xa0 | length) && !memcmp(name + 1, key, length))
            return (struct value){content, (size_t)(place - content)};
    }
    exit(4); /* a header that the page promises is missing */
}

static void begin(uint8_t pairs) {
    headers[0] = 0x80 | pairs;
    headers_length = 1;
}

static void put(const void *bytes, size_t length) {
    memcpy(headers + headers_length, bytes, length);
    headers_length += length;
}

static void put_text(const char *text) {
    uint8_t kind[2] = {0xd9, (uint8_t)strlen(text)};
    put(kind, 2);
    put(text, strlen(text));
}

static void put_pair(const char *key, struct value value) {
    put_text(key);
    put(value.start, value.length);
}

static void put_roles(const char *role) {
    put_text("roles");
    put("\x91", 1);
    put_text(role);
    put_text("lease");
    put("\x1e", 1); /* 30 */
}

static void send_message(const char *command, const void *payload, size_t length) {
    zmq_send(dealer, "", 0, ZMQ_SNDMORE);
    zmq_send(dealer, "WMP1", 4, ZMQ_SNDMORE);
    zmq_send(dealer, command, strlen(command), ZMQ_SNDMORE);
    zmq_send(dealer, headers, headers_length, payload ? ZMQ_SNDMORE : 0);
    if (payload) zmq_send(dealer, payload, length, 0);
}

static void ready(const char *role) {
    begin(2);
    put_roles(role);
    send_message("READY", NULL, 0);
}

static void do_job(const uint8_t *map, uint8_t *payload, size_t length) {
    struct value to = find(map, "path"), job = find(map, "job"), manager = find(map, "manager");
    begin(5);
    put_pair("to", to), put_pair("job", job), put_pair("manager", manager);
    put_text("numerator"), put("\x01", 1), put_text("denominator"), put("\x02", 1);
    send_message("STATUS", NULL, 0);
    for (size_t i = 0; i < length; i++) payload[i] = (uint8_t)toupper(payload[i]);
    begin(3);
    put_pair("to", to), put_pair("job", job), put_pair("manager", manager);
    send_message("DONE", payload, length);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    const char *role = argv[3];
    char endpoint[256], identity[64];
    snprintf(endpoint, sizeof endpoint, "tcp://%s:%s", argv[1], argv[2]);
    snprintf(identity, sizeof identity, "c-%ld", (long)getpid());
    void *context = zmq_ctx_new();
    dealer = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(dealer, ZMQ_ROUTING_ID, identity, strlen(identity));
    if (zmq_connect(dealer, endpoint)) return 1;
    static uint8_t frames[5][LONGEST];
    int pause_ms = FIRST_PAUSE_MS, jobs = atoi(argv[4]);
    ready(role);
    while (jobs) {
        zmq_setsockopt(dealer, ZMQ_RCVTIMEO, &pause_ms, sizeof pause_ms);
        int lengths[5] = {0}, count = 0, more = 1;
        for (size_t size = sizeof more; more && count < 5; count++) {
            if ((lengths[count] = zmq_recv(dealer, frames[count], LONGEST, 0)) < 0) break;
            zmq_getsockopt(dealer, ZMQ_RCVMORE, &more, &size);
        }
        if (count == 0) {
            if (errno != EAGAIN) return 1;
            ready(role); /* the manager may have forgotten the last one */
            pause_ms = 2 * pause_ms < LONGEST_PAUSE_MS ? 2 * pause_ms : LONGEST_PAUSE_MS;
            continue;
        }
        pause_ms = FIRST_PAUSE_MS;
        if (count < 4 || lengths[1] != 4 || memcmp(frames[1], "WMP1", 4)) return 1;
        if (lengths[2] == 4 && !memcmp(frames[2], "WAKE", 4)) {
            begin(3);
            put_pair("to", find(frames[3], "path"));
            put_roles(role);
            send_message("GIVE", NULL, 0);
        } else if (lengths[2] == 4 && !memcmp(frames[2], "TAKE", 4)) {
            do_job(frames[3], frames[4], (size_t)lengths[4]);
            if (--jobs) ready(role);
        } else if (lengths[2] == 2 && !memcmp(frames[2], "NO", 2)) {
            ready(role);
        }
    }
    zmq_close(dealer);
    return zmq_ctx_term(context);
}
