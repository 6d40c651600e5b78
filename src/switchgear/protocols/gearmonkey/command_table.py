"""The table of supported Redis commands, with their handlers and numbers of words as Redis counts them.

A command that has subcommands is not handled itself unless it may come without one.
"""

from __future__ import annotations

from typing import Final

from switchgear.protocols.gearmonkey import general_commands, hashes, key_commands, monitoring, pubsub, queues
from switchgear.protocols.gearmonkey.listener_state import RedisVerb

__all__ = ["VERBS"]

CLIENT: Final = {
    b"GETNAME": RedisVerb(general_commands.on_client_getname, 2),
    b"ID": RedisVerb(general_commands.on_client_id, 2),
    b"INFO": RedisVerb(monitoring.on_client_info, 2),
    b"LIST": RedisVerb(monitoring.on_client_list, -2),
    b"MAINT_NOTIFICATIONS": RedisVerb(general_commands.on_client_maintenance, -2),
    b"NO-EVICT": RedisVerb(general_commands.on_client_switch, 3),
    b"NO-TOUCH": RedisVerb(general_commands.on_client_switch, 3),
    b"SETINFO": RedisVerb(general_commands.on_client_setinfo, 4),
    b"SETNAME": RedisVerb(general_commands.on_client_setname, 3),
}
COMMAND: Final = {
    b"COUNT": RedisVerb(monitoring.on_command_count, 2),
    b"DOCS": RedisVerb(general_commands.on_no_answers, -2),
    b"INFO": RedisVerb(monitoring.on_command_info, -2),
    b"LIST": RedisVerb(monitoring.on_command_list, -2),
}
CONFIG: Final = {b"GET": RedisVerb(general_commands.on_no_answers, -3)}
SCRIPT: Final = {
    b"EXISTS": RedisVerb(queues.on_script_exists, -3),
    b"FLUSH": RedisVerb(queues.on_script_flush, -2),
    b"LOAD": RedisVerb(queues.on_script_load, 3),
}

VERBS: Final = {
    # GearMonkey's document
    b"BRPOP": RedisVerb(queues.on_brpop, -3),
    b"DECR": RedisVerb(key_commands.on_decr, 2),
    b"EVAL": RedisVerb(queues.on_eval, -3),
    b"EVALSHA": RedisVerb(queues.on_evalsha, -3),
    b"EXPIRE": RedisVerb(key_commands.on_expire, -3),
    b"GET": RedisVerb(key_commands.on_get, 2),
    b"HGETALL": RedisVerb(hashes.on_hgetall, 2),
    b"HMSET": RedisVerb(hashes.on_hmset, -4),
    b"INCR": RedisVerb(key_commands.on_incr, 2),
    b"LPUSH": RedisVerb(queues.on_lpush, -3),
    b"PUBLISH": RedisVerb(pubsub.on_publish, 3),
    b"SCRIPT": RedisVerb(general_commands.on_nothing, -2, subcommands=SCRIPT),
    b"ZADD": RedisVerb(queues.on_zadd, -4),
    # Further commands that its clients and workers may use.
    b"DECRBY": RedisVerb(key_commands.on_decrby, 3),
    b"DEL": RedisVerb(key_commands.on_del, -2),
    b"EXISTS": RedisVerb(key_commands.on_exists, -2),
    b"HGET": RedisVerb(hashes.on_hget, 3),
    b"HMGET": RedisVerb(hashes.on_hmget, -3),
    b"HSET": RedisVerb(hashes.on_hset, -4),
    b"INCRBY": RedisVerb(key_commands.on_incrby, 3),
    b"PSUBSCRIBE": RedisVerb(pubsub.on_psubscribe, -2, while_subscribed=True, in_transaction=False),
    b"PUNSUBSCRIBE": RedisVerb(pubsub.on_punsubscribe, -1, while_subscribed=True, in_transaction=False),
    b"RPOP": RedisVerb(queues.on_rpop, -2),
    b"SUBSCRIBE": RedisVerb(pubsub.on_subscribe, -2, while_subscribed=True, in_transaction=False),
    b"TTL": RedisVerb(key_commands.on_ttl, 2),
    b"UNSUBSCRIBE": RedisVerb(pubsub.on_unsubscribe, -1, while_subscribed=True, in_transaction=False),
    # Commands of monitoring tools.
    b"DBSIZE": RedisVerb(monitoring.on_dbsize, 1),
    b"LLEN": RedisVerb(monitoring.on_llen, 2),
    b"LRANGE": RedisVerb(monitoring.on_lrange, 4),
    b"SCAN": RedisVerb(monitoring.on_scan, -2),
    b"TIME": RedisVerb(monitoring.on_time, 1),
    b"TYPE": RedisVerb(monitoring.on_type, 2),
    b"ZCARD": RedisVerb(monitoring.on_zcard, 2),
    # Commands of any Redis client.
    b"AUTH": RedisVerb(general_commands.on_auth, -2),
    b"CLIENT": RedisVerb(general_commands.on_nothing, -2, subcommands=CLIENT),
    b"COMMAND": RedisVerb(monitoring.on_command, -1, subcommands=COMMAND),
    b"CONFIG": RedisVerb(general_commands.on_nothing, -2, subcommands=CONFIG),
    b"DISCARD": RedisVerb(general_commands.on_discard, 1, in_transaction=False),
    b"ECHO": RedisVerb(general_commands.on_echo, 2),
    b"EXEC": RedisVerb(general_commands.on_exec, 1, in_transaction=False),
    b"HOST:": RedisVerb(general_commands.on_http, -1, while_subscribed=True, in_transaction=False),
    b"HELLO": RedisVerb(general_commands.on_hello, -1),
    b"INFO": RedisVerb(general_commands.on_info, -1),
    b"MULTI": RedisVerb(general_commands.on_multi, 1, in_transaction=False),
    b"PING": RedisVerb(general_commands.on_ping, -1, while_subscribed=True),
    b"POST": RedisVerb(general_commands.on_http, -1, while_subscribed=True, in_transaction=False),
    b"QUIT": RedisVerb(general_commands.on_quit, -1, while_subscribed=True, in_transaction=False),
    b"RESET": RedisVerb(general_commands.on_reset, 1, while_subscribed=True, in_transaction=False),
    b"SELECT": RedisVerb(general_commands.on_select, 2),
}
