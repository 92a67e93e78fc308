#!/bin/sh
# Run a command; with RAY_HEAD=host:port, on a Ray node of this container's own that has joined that cluster and has no
# processors, so that the flow runs here and its work elsewhere. The node ends with the command, and the command with
# the node: without it no run could start, and whoever restarts this container joins the cluster that is there then.
set -eu
[ -n "${RAY_HEAD:-}" ] || exec "$@"
ray start --address="$RAY_HEAD" --num-cpus=0 --num-gpus=0 --object-store-memory=1000000000 --disable-usage-stats --block &
node=$!
trap 'kill "$node" 2> /dev/null || true' EXIT
trap 'kill "$command"' TERM INT
until python -c 'import ray; ray.init(address="auto", logging_level="ERROR")' 2> /dev/null; do
    kill -0 "$node" || { echo "join.sh: Ray did not join $RAY_HEAD" >&2; exit 1; }
    sleep 1
done
"$@" &
command=$!
while kill -0 "$node" 2> /dev/null; do sleep 2; done && kill "$command" 2> /dev/null && echo "join.sh: the Ray node ended" >&2 &
status=0
wait "$command" || status=$?
wait "$command" 2> /dev/null || true # after a signal: until it has let go
exit "$status"
