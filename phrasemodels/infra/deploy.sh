#!/bin/sh
# Create the work pool with these options and the deployments of prefect.yaml, over any changes on the server, and the
# automation if it does not exist.
set -eu
prefect --no-prompt work-pool create phrasemodels --overwrite "$@"
prefect --no-prompt deploy --all
prefect automation inspect 'Runs without a heartbeat crash' > /dev/null 2>&1 ||
    prefect --no-prompt automation create --from-file phrasemodels/infra/zombies.json
