"""The bridge between the server and a Redis that holds GearMonkey's keys.

Inbound: a GearMonkey client's job is claimed, run by whatever worker the engine has, and its result written back.
Outbound: a job of ours that nobody in the engine serves is pushed for GearMonkey workers, and its result fetched.
Needs redis-py.
"""
