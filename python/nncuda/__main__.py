"""`python -m nncuda`: the command line, also from a source tree."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="nncuda")
