"""Tasks that any program could use: they name no app, and belong to the app of the program."""

from pathlib import Path

from switchgear import shared_task


@shared_task(retries=5)
def send_mail(to: str, subject: str) -> None:
    """Send a mail; here it only goes to a file."""
    with Path("outbox").open("a") as outbox:
        outbox.write(f"{to}: {subject}\n")
