#!/usr/bin/env bash
# Run a command in a network of its own: loopback, and a way out on which every packet is counted and goes nowhere.
# COUNT_FILE.open has the sockets that listened beyond loopback meanwhile.
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

open_beyond_loopback() { # local address in column 2, in hex; 0A listens
    while sleep 0.2; do
        awk '$4 == "0A" && $2 !~ /^0100007F:|^0*(FFFF0000)?01(000000|00007F):/ { print $2 }' /proc/net/tcp /proc/net/tcp6
    done
}
open_beyond_loopback > "$count.open" &
watching=$!
status=0
"$@" || status=$?
kill "$watching"
awk '$1 == "outside:" { print $11 }' /proc/net/dev > "$count"
exit "$status"
