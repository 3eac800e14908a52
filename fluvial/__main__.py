"""`python -m fluvial` is the command `fluvial`."""

from fluvial.cli import main

main()
