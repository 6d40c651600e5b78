"""What the shop does after the customer has gone."""

from __future__ import annotations

import asyncio
from typing import Any

try:
    from django.tasks import task
except ModuleNotFoundError:  # before Django 6
    from django_tasks import task


@task(queue_name="mail", priority=10)
def send_receipt(order: int) -> str:
    """Write the receipt of an order."""
    return f"receipt {order}: thank you"


@task(takes_context=True)
def count_attempts(context: Any) -> int:
    """Which attempt this is."""
    return int(context.attempt)


@task
async def fetch_rates(currency: str) -> dict[str, float]:
    """Something that waits for others."""
    await asyncio.sleep(0)
    return {currency: 1.25}


@task
def charge(order: int) -> None:
    """A task that cannot succeed."""
    raise LookupError(f"order {order} has no card")
