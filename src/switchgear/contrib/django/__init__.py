"""A backend for Django's tasks: those of Django 6 and later, or of the package `django-tasks` for earlier ones.

    TASKS = {
        "default": {
            "BACKEND": "switchgear.contrib.django.SwitchgearBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {"url": "gearman://jobs.example:4730", "retries": 3},
        },
    }

`python manage.py switchgear_worker` runs what was enqueued, if `switchgear.contrib.django` is in INSTALLED_APPS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from switchgear.contrib.django.backend import SwitchgearBackend

__all__ = ["SwitchgearBackend"]


def __getattr__(name: str) -> object:
    # Django imports this module before its settings are ready; the backend needs them.
    if name == "SwitchgearBackend":
        from switchgear.contrib.django.backend import SwitchgearBackend

        return SwitchgearBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
