"""`python -m lightning_tfm`: the command, where its script is not on the path."""

import sys

from lightning_tfm.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
