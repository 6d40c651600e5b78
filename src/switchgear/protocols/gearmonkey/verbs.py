"""Every command that is understood, and how many words it has, in the way Redis counts them.

A command that has subcommands is not handled itself unless it may come without one.
"""

from __future__ import annotations

from typing import Final

from switchgear.protocols.gearmonkey import connecting, hashes, keyspace, pubsub, queues
from switchgear.protocols.gearmonkey.setup import Verb

__all__ = ["VERBS"]

CLIENT: Final = {
    b"GETNAME": Verb(connecting.on_client_getname, 2),
    b"ID": Verb(connecting.on_client_id, 2),
    b"MAINT_NOTIFICATIONS": Verb(connecting.on_client_maintenance, -2),
    b"NO-EVICT": Verb(connecting.on_client_switch, 3),
    b"NO-TOUCH": Verb(connecting.on_client_switch, 3),
    b"SETINFO": Verb(connecting.on_client_setinfo, 4),
    b"SETNAME": Verb(connecting.on_client_setname, 3),
}
COMMAND: Final = {
    b"COUNT": Verb(connecting.on_command_count, 2),
    b"DOCS": Verb(connecting.on_no_answers, -2),
}
CONFIG: Final = {b"GET": Verb(connecting.on_no_answers, -3)}
SCRIPT: Final = {
    b"EXISTS": Verb(queues.on_script_exists, -3),
    b"FLUSH": Verb(queues.on_script_flush, -2),
    b"LOAD": Verb(queues.on_script_load, 3),
}

VERBS: Final = {
    # what GearMonkey's document has
    b"BRPOP": Verb(queues.on_brpop, -3),
    b"DECR": Verb(keyspace.on_decr, 2),
    b"EVAL": Verb(queues.on_eval, -3),
    b"EVALSHA": Verb(queues.on_evalsha, -3),
    b"EXPIRE": Verb(keyspace.on_expire, -3),
    b"GET": Verb(keyspace.on_get, 2),
    b"HGETALL": Verb(hashes.on_hgetall, 2),
    b"HMSET": Verb(hashes.on_hmset, -4),
    b"INCR": Verb(keyspace.on_incr, 2),
    b"LPUSH": Verb(queues.on_lpush, -3),
    b"PUBLISH": Verb(pubsub.on_publish, 3),
    b"SCRIPT": Verb(connecting.on_nothing, -2, subcommands=SCRIPT),
    b"ZADD": Verb(queues.on_zadd, -4),
    # what its clients and workers may use beside that
    b"DECRBY": Verb(keyspace.on_decrby, 3),
    b"DEL": Verb(keyspace.on_del, -2),
    b"EXISTS": Verb(keyspace.on_exists, -2),
    b"HGET": Verb(hashes.on_hget, 3),
    b"HMGET": Verb(hashes.on_hmget, -3),
    b"HSET": Verb(hashes.on_hset, -4),
    b"INCRBY": Verb(keyspace.on_incrby, 3),
    b"PSUBSCRIBE": Verb(pubsub.on_psubscribe, -2, while_subscribed=True, in_transaction=False),
    b"PUNSUBSCRIBE": Verb(pubsub.on_punsubscribe, -1, while_subscribed=True, in_transaction=False),
    b"RPOP": Verb(queues.on_rpop, -2),
    b"SUBSCRIBE": Verb(pubsub.on_subscribe, -2, while_subscribed=True, in_transaction=False),
    b"TTL": Verb(keyspace.on_ttl, 2),
    b"UNSUBSCRIBE": Verb(pubsub.on_unsubscribe, -1, while_subscribed=True, in_transaction=False),
    # what is said to any Redis
    b"AUTH": Verb(connecting.on_auth, -2),
    b"CLIENT": Verb(connecting.on_nothing, -2, subcommands=CLIENT),
    b"COMMAND": Verb(connecting.on_nothing, -1, subcommands=COMMAND),
    b"CONFIG": Verb(connecting.on_nothing, -2, subcommands=CONFIG),
    b"DISCARD": Verb(connecting.on_discard, 1, in_transaction=False),
    b"ECHO": Verb(connecting.on_echo, 2),
    b"EXEC": Verb(connecting.on_exec, 1, in_transaction=False),
    b"HOST:": Verb(connecting.on_http, -1, while_subscribed=True, in_transaction=False),
    b"HELLO": Verb(connecting.on_hello, -1),
    b"INFO": Verb(connecting.on_info, -1),
    b"MULTI": Verb(connecting.on_multi, 1, in_transaction=False),
    b"PING": Verb(connecting.on_ping, -1, while_subscribed=True),
    b"POST": Verb(connecting.on_http, -1, while_subscribed=True, in_transaction=False),
    b"QUIT": Verb(connecting.on_quit, -1, while_subscribed=True, in_transaction=False),
    b"RESET": Verb(connecting.on_reset, 1, while_subscribed=True, in_transaction=False),
    b"SELECT": Verb(connecting.on_select, 2),
}
