"""`python -m rstream` is the `rstream` command."""

from rstream.cli.main import main

main()
