"""The app that a worker serves: `switchgear worker switchgear.contrib.django.worker:app`.

DJANGO_SETTINGS_MODULE names the project, SWITCHGEAR_DJANGO_BACKEND one of its TASKS, usually `default`.  The module
`tasks` of each installed app is imported.
"""

from __future__ import annotations

import os

import django
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from switchgear.app.app import App

__all__ = ["app"]


def _app_of(alias: str) -> App:
    django.setup()
    autodiscover_modules("tasks")  # so that tasks which are declared without an app are known
    from switchgear.contrib.django.backend import SwitchgearBackend
    from switchgear.contrib.django.framework import task_backends

    backend = task_backends[alias]
    if not isinstance(backend, SwitchgearBackend):
        raise ImproperlyConfigured(f"TASKS[{alias!r}] is not a SwitchgearBackend but {type(backend).__name__}")
    return backend.app


app = _app_of(os.environ.get("SWITCHGEAR_DJANGO_BACKEND", "default"))
