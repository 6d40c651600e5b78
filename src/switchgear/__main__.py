"""`python -m switchgear` is the `switchgear` command."""

from switchgear.cli.main import main

if __name__ == "__main__":
    main(prog_name="switchgear")
