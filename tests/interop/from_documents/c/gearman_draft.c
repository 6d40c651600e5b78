/* A worker of the Gearman draft of 2005, from its text: HOST PORT NAME JOBS.  Does so many jobs, in capitals, and leaves. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NOOP, CONNECT, DISCONNECT, SLEEP, ASSIGN_REQ = 6, ASSIGN_RES, STATUS, COMPLETE = 11 };

static int server;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void send_packet(uint8_t type, const void *body, uint32_t length) {
    uint8_t header[9] = {0, 'J', 'O', 'B', type};
    uint32_t big_endian = htonl(length);
    memcpy(header + 5, &big_endian, 4);
    if (write(server, header, 9) != 9 || (length && write(server, body, length) != (ssize_t)length)) fail("write");
}

/* Returns 0 when the server has closed the connection. */
static int read_all(void *target, size_t length) {
    for (uint8_t *place = target; length;) {
        ssize_t count = read(server, place, length);
        if (count < 0) fail("read");
        if (count == 0) return 0;
        place += count, length -= (size_t)count;
    }
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &address.sin_addr);
    server = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(server, (struct sockaddr *)&address, sizeof address)) fail("connect");
    send_packet(CONNECT, argv[3], (uint32_t)strlen(argv[3]));
    send_packet(ASSIGN_REQ, NULL, 0);
    int jobs = atoi(argv[4]), asleep = 0;
    uint8_t header[9];
    while (read_all(header, 9)) {
        uint32_t length;
        memcpy(&length, header + 5, 4);
        length = ntohl(length);
        uint8_t *body = malloc(length + 1);
        if (!read_all(body, length)) fail("a packet without its end");
        if (header[4] == ASSIGN_RES && jobs) {
            uint8_t *arguments = memchr(body, 0, length);
            if (!arguments) fail("no name");
            uint32_t figures[3] = {htonl(1), htonl(2), htonl(3)};
            send_packet(STATUS, figures, 12);
            for (uint8_t *place = arguments + 1; place < body + length; place++) *place = (uint8_t)toupper(*place);
            send_packet(COMPLETE, arguments, (uint32_t)(body + length - arguments)); /* the NUL is the code: success */
            asleep = 0;
            send_packet(--jobs ? ASSIGN_REQ : DISCONNECT, NULL, 0);
        } else if (header[4] == NOOP && jobs) {
            asleep = !asleep; /* "no, sorry" to the request, or "wake up" to the sleep */
            send_packet(asleep ? SLEEP : ASSIGN_REQ, NULL, 0);
        }
        free(body);
    }
    return jobs != 0;
}
