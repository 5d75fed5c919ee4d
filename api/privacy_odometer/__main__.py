"""`python -m privacy_odometer`: the command line `odometer`."""

from privacy_odometer.cli import main

main()
