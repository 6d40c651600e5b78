"""Stand-ins on this machine for what the site talks to: a mail server, other people's web servers, its own nodes."""
