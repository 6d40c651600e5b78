"""The shop with the dashboard of its job server below /dashboard: `uvicorn asgi:application`."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

from switchgear.contrib.asgi import at_path, dashboard

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")

# Visitors may look at the jobs; `authorize` would tell who may do more, or not even that.
jobs = dashboard(os.environ.get("SWITCHGEAR_HTTP", "http://127.0.0.1:4740"))
application = at_path("/dashboard", jobs, get_asgi_application())
