"""The torture suite: a real server under load and faults, judged from outside (`python -m torture --help`)."""
