"""`python -m baton_actors.cli`, where the console script is not on the path."""

from baton_actors.cli import main

main()
