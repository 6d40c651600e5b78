"""`manage.py switchgear_worker`: runs a worker for enqueued tasks."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    help = "Runs the tasks of a SwitchgearBackend.  What follows -- goes to `switchgear worker`; see its --help."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--backend", default="default", help="Which of TASKS to work for. Default: default.")
        parser.add_argument("options", nargs="*", metavar="-- OPTION", help="Such as: -- --slots 8 --quiet")

    def handle(self, *, backend: str, options: list[str], **_: Any) -> None:
        os.environ["SWITCHGEAR_DJANGO_BACKEND"] = backend
        # Replaces this process, so that signals reach the worker, and its exit code becomes this one's.
        worker = "switchgear.contrib.django.worker:app"
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "switchgear", "worker", worker, *options])
