/* A GearMonkey worker, from the specification's text, with hiredis: HOST PORT NAME JOBS. */
#include <ctype.h>
#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCRIPT "local item = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, 1); if (#item > 0) then " \
               "redis.call('ZREM', KEYS[1], item[1]); return { KEYS[1],  item[1] }; end"
#define DIGEST "5231827cd49b540660ef44969b38cc858f157824"

static redisContext *server;

/* Ends the program at an error. */
static redisReply *command(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(server, format, arguments);
    va_end(arguments);
    if (!reply || reply->type == REDIS_REPLY_ERROR) {
        fprintf(stderr, "%s: %s\n", format, reply ? reply->str : server->errstr);
        exit(1);
    }
    return reply;
}

static void say(redisReply *reply) { freeReplyObject(reply); }

static void do_job(const char *name, const char *id) {
    say(command("PUBLISH channel:%s start:%s", name, id));
    say(command("HMSET job:%s:%s status busy", name, id));
    redisReply *input = command("HGET job:%s:%s input", name, id);
    for (size_t i = 0; i < input->len; i++) input->str[i] = (char)toupper((unsigned char)input->str[i]);
    say(command("HMSET job:%s:%s status:dividend 1 status:divisor 2", name, id));
    say(command("HMSET job:%s:%s status success output %b", name, id, input->str, input->len));
    freeReplyObject(input);
    say(command("EXPIRE job:%s:%s 90000", name, id));
    say(command("PUBLISH channel:%s finish:%s", name, id));
    say(command("LPUSH lock:%s:%s OK", name, id));
    say(command("EXPIRE lock:%s:%s 10", name, id));
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    const char *name = argv[3];
    server = redisConnect(argv[1], atoi(argv[2]));
    if (!server || server->err) return 1;
    redisReply *digest = command("SCRIPT LOAD %s", SCRIPT);
    if (strcmp(digest->str, DIGEST)) return 1;
    freeReplyObject(digest);
    say(command("INCR count:%s", name));
    for (int jobs = atoi(argv[4]); jobs;) {
        redisReply *item = command("EVALSHA " DIGEST " 1 queue:%s:scheduled %ld", name, (long)time(NULL));
        if (item->type == REDIS_REPLY_NIL) {
            freeReplyObject(item);
            item = command("BRPOP queue:%s:high queue:%s:normal queue:%s:low 1", name, name, name);
        }
        if (item->type == REDIS_REPLY_ARRAY && item->elements == 2) do_job(name, item->element[1]->str), jobs--;
        freeReplyObject(item);
    }
    say(command("DECR count:%s", name));
    redisFree(server);
    return 0;
}
