"""What the site writes to its users."""

from __future__ import annotations

from email.headerregistry import Address
from email.message import EmailMessage
from pathlib import Path

__all__ = ["BIRTHDAY_SUBJECT", "birthday_letter", "comment_letter", "welcome_letter"]

BIRTHDAY_SUBJECT = "Herzlichen Glückwunsch!"

SITE = Address("The journals", "no-reply", "journals.example")


def _letter_to(name: str, subject: str, text: str) -> EmailMessage:
    letter = EmailMessage()
    letter["From"] = SITE
    letter["To"] = Address(name.capitalize(), name, "users.example")
    letter["Subject"] = subject
    letter.set_content(f"Dear {name.capitalize()},\n\n{text}\n")
    return letter


def welcome_letter(name: str, picture: Path) -> EmailMessage:
    """With an attachment."""
    letter = _letter_to(name, "Welcome", "your journal is ready.  A first picture for it is attached.")
    letter.add_attachment(picture.read_bytes(), maintype="image", subtype="jpeg", filename="first.jpg")
    return letter


def comment_letter(name: str, author: str, comment: str) -> EmailMessage:
    """As text and as HTML."""
    letter = _letter_to(name, f"{author} has answered you", f"{author} writes:\n\n> {comment}")
    letter.add_alternative(f"<p>{author} writes:</p><blockquote>{comment}</blockquote>", subtype="html")
    return letter


def birthday_letter(name: str) -> EmailMessage:
    """In more than one alphabet."""
    return _letter_to(name, BIRTHDAY_SUBJECT, "с днём рождения, and many happy returns of the day.")
