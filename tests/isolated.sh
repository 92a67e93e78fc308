#!/usr/bin/env bash
# Run a command in a network of its own: loopback, and a way out on which every packet is counted and goes nowhere.
#   isolated.sh COUNT_FILE COMMAND...
set -euo pipefail
if [ -z "${INSIDE:-}" ]; then
    as_root=$([ "$(id -u)" = 0 ] || echo --map-root-user)
    exec env INSIDE=1 unshare --net $as_root bash "$0" "$@"
fi
unset INSIDE
count=$1
shift
ip link set lo up
ip link add outside type veth peer name peer
for device in outside peer; do
    echo 1 > "/proc/sys/net/ipv6/conf/$device/disable_ipv6" 2> /dev/null || true
    ip link set "$device" arp off multicast off up
done
ip address add 10.211.0.1/24 dev outside
ip route add default dev outside
status=0
"$@" || status=$?
awk '$1 == "outside:" { print $11 }' /proc/net/dev > "$count"
exit "$status"
