/* A PingPongWorker, from the document's text, with libzmq: HOST PORT NAME JOBS. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum { BROKER_TIMEOUT_MS = 1000, N_TIMEOUTS = 3, LONGEST = 1 << 20 };

static void *context;

static void send_word(void *frontend, const void *word, size_t length) {
    zmq_send(frontend, "", 0, ZMQ_SNDMORE);
    zmq_send(frontend, word, length, 0);
}

static void *connect_frontend(const char *endpoint) {
    void *frontend = zmq_socket(context, ZMQ_DEALER);
    int timeout = BROKER_TIMEOUT_MS;
    zmq_setsockopt(frontend, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
    if (zmq_connect(frontend, endpoint)) exit(1);
    send_word(frontend, "READY", 5);
    return frontend;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    char endpoint[256];
    snprintf(endpoint, sizeof endpoint, "tcp://%s:%s", argv[1], argv[2]);
    context = zmq_ctx_new();
    void *frontend = connect_frontend(endpoint);
    static char message[LONGEST];
    int timeouts = 0, jobs = atoi(argv[4]);
    while (jobs) {
        if (zmq_recv(frontend, message, LONGEST, 0) < 0) {
            if (errno != EAGAIN) return 1;
            if (++timeouts > N_TIMEOUTS) {
                zmq_close(frontend);
                frontend = connect_frontend(endpoint);
                timeouts = 0;
            } else {
                send_word(frontend, "PING", 4);
            }
            continue;
        }
        timeouts = 0;
        int length = zmq_recv(frontend, message, LONGEST, 0); /* the frame after the empty one */
        if (length < 0 || length > LONGEST) return 1;
        if (length == 4 && !memcmp(message, "PONG", 4)) continue;
        for (int i = 0; i < length; i++) message[i] = (char)toupper((unsigned char)message[i]);
        send_word(frontend, message, (size_t)length);
        jobs--;
    }
    zmq_close(frontend);
    return zmq_ctx_term(context);
}
