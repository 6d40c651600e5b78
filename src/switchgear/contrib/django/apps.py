"""The Django app config, for INSTALLED_APPS: "switchgear.contrib.django"."""

from __future__ import annotations

from django.apps import AppConfig


class SwitchgearConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """Adds the command `manage.py switchgear_worker`."""

    name = "switchgear.contrib.django"
    label = "switchgear"
    verbose_name = "Switchgear"
