"""Tasks about orders."""

from shop.app import app
from shop.mail.tasks import send_mail


@app.task(retries=3, unique=True)
def confirm(order: int) -> str:
    """Confirm an order to its customer."""
    send_mail.submit("customer@example.com", f"Order {order} is confirmed")
    return f"order {order} confirmed"
