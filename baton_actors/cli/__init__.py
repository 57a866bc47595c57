"""The `baton` command. Standard output is data only; everything else goes to standard error."""

import os
import sys


def main() -> None:
    """The console script: runs one command and exits with its code."""
    # A worker is named as `module:function` and looked for where the user stands, as `python -m` does.
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    from baton_actors.cli.app import execute

    sys.exit(execute(sys.argv[1:]))
