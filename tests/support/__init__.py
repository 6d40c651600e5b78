"""What several kinds of tests need: other people's programs, server processes, raw sockets, waiting."""
