"""`python -m truedrift` is the command `truedrift`."""

import sys

from truedrift.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
