"""The bridge between the server and a Redis that holds GearMonkey's keys.

Inbound: the bridge claims a job of a GearMonkey client, a worker of the engine runs the job, and the bridge writes its
result to Redis. Outbound: the bridge pushes a job for which the engine has no worker to Redis, where a GearMonkey
worker runs it, and fetches its result. The package needs redis-py.
"""
