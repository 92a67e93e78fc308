"""`python -m phrasemodels.flows.cli`: the command `phrasemodels`."""

from phrasemodels.flows.cli.main import main

main()
