"""`python -m switchgear` is the `switchgear` command."""

from switchgear.cli.entry_point import main

if __name__ == "__main__":
    main()
