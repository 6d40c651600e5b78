"""What the site talks to, as stand-ins on this machine: a mail server, other people's web servers, its own web nodes."""
