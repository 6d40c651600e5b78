"""The settings of the shop: what Django needs, and where its tasks are kept."""

from __future__ import annotations

import importlib.util
import os

SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only for looking at the example")
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["shop", "switchgear.contrib.django"]
if importlib.util.find_spec("django.tasks") is None:  # before Django 6 they are a package of their own
    INSTALLED_APPS.append("django_tasks")

TASKS = {
    "default": {
        "BACKEND": "switchgear.contrib.django.SwitchgearBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {
            "url": os.environ.get("SWITCHGEAR_URL"),  # None: the directory .switchgear
            "timeout": 60,
            "retention": 24 * 3600,
        },
    },
}
