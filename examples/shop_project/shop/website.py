"""Where jobs are submitted: a view of the web site, say."""

from shop.orders.tasks import confirm


def place_order(order: int) -> str:
    """Store the order, and have it confirmed; returns the handle of the job."""
    job = confirm.submit(order)
    return str(job.handle)
