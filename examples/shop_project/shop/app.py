"""The app.  Modules with tasks import it, and it imports none of them."""

from switchgear import App

app = App(name="shop")
