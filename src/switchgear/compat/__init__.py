"""Compatibility layers: programs written for Celery, RQ or Huey run with their import changed.

`from switchgear.compat.celery import Celery`, `from switchgear.compat.rq import Queue` and
`from switchgear.compat.huey import RedisHuey` take the place of the original imports.  Each layer translates to
`switchgear.App`; what it cannot do raises `NotSupported`, which says what to use.
"""
