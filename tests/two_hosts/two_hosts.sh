#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts in one machine, as network and UTS namespaces: `a` (10.77.0.1) and `b` (10.77.0.2) with
# a veth pair between them, and this script in place of ssh. Needs root.
#   two_hosts.sh can [delay]        says why there can be none, or none with a delay; exit 0: can
#   two_hosts.sh up DIR [RELAY US]  makes them; DIR has what they need; each packet arrives so many
#                                   microseconds later: by netem where the kernel has it, else
#                                   RELAY carries them in place of the veth pair
#   two_hosts.sh down DIR           ends every process in them, and removes them
#   two_hosts.sh on DIR HOST CMD... runs CMD on a host
#   two_hosts.sh mpirun DIR ARGS... tools/mpirun on host a, with b at hand
#   two_hosts.sh agent HOST CMD...  what mpirun calls in place of ssh
#   two_hosts.sh rate DIR RATE      both ends send at RATE (of tc: 1gbit)
#   two_hosts.sh cut DIR both|a|b|none  the link down; or one end's words go astray; or mended
#   two_hosts.sh processes DIR      numbers of the processes on both hosts
set -euo pipefail
me=$(readlink -f "${BASH_SOURCE[0]}")

namespace() { printf 'cleave-%s-%s' "$(basename "$1")" "$2"; }
address() { if [[ $1 == a ]]; then printf 10.77.0.1; else printf 10.77.0.2; fi; }

enter() { # enter DIR HOST CMD...
    local dir=$1 host=$2
    shift 2
    exec nsenter --uts="$dir/$host.uts" ip netns exec "$(namespace "$dir" "$host")" env CLEAVE_TWO_HOSTS="$dir" "$@"
}

has_netem() { unshare -n tc qdisc add dev lo root netem delay 1ms 2>/dev/null; }

# How an interface sends its packets: with tc's words for a rate, after the delay if there is one.
shape() { # shape DIR [rate RATE]
    local dir=$1 host
    shift
    for host in a b; do
        if [[ -e $dir/delay ]]; then
            ip netns exec "$(namespace "$dir" $host)" tc qdisc replace dev net0 root netem limit 20000 delay "$(cat "$dir/delay")us" "$@"
        else
            ip netns exec "$(namespace "$dir" $host)" tc qdisc replace dev net0 root tbf "$@" burst 128kb latency 50ms
        fi
    done
}

case ${1:-} in
can)
    [[ $(id -u) == 0 ]] || { echo "no network namespaces without root"; exit 1; }
    for tool in ip tc nsenter unshare; do command -v $tool >/dev/null || { echo "there is no $tool"; exit 1; }; done
    unshare -nu true 2>/dev/null || { echo "no network namespaces here"; exit 1; }
    unshare -n bash -c 'ip link add name v0 type veth peer name v1' 2>/dev/null || { echo "no veth pairs in network namespaces here"; exit 1; }
    [[ ${2:-} != delay ]] || has_netem || [[ -e /dev/net/tun ]] || { echo "no netem and no /dev/net/tun to delay packets by"; exit 1; }
    ;;
up)
    dir=$2
    shift 2
    for host in a b; do
        ip netns add "$(namespace "$dir" $host)"
        touch "$dir/$host.uts"
        unshare --uts="$dir/$host.uts" hostname $host
        mkdir -p "/etc/netns/$(namespace "$dir" $host)"
        printf '127.0.0.1 localhost\n10.77.0.1 a\n10.77.0.2 b\n' >"/etc/netns/$(namespace "$dir" $host)/hosts"
        ip -n "$(namespace "$dir" $host)" link set lo up
    done
    if [[ $# -gt 0 ]] && ! has_netem; then
        "$@" "$(namespace "$dir" a)" "$(namespace "$dir" b)" </dev/null >"$dir/relay.log" 2>&1 &
        echo $! >"$dir/relay.pid"
        until grep -qs ready "$dir/relay.log"; do kill -0 "$(cat "$dir/relay.pid")" || { cat "$dir/relay.log"; exit 1; }; sleep 0.02; done
    else
        ip -n "$(namespace "$dir" a)" link add name net0 type veth peer name net0 netns "$(namespace "$dir" b)"
        if [[ $# -gt 0 ]]; then echo "$2" >"$dir/delay"; fi
    fi
    for host in a b; do
        # Fewer, larger packets through the relay, which has a share of a core.
        if [[ -e $dir/relay.pid ]]; then ip -n "$(namespace "$dir" $host)" link set net0 mtu 9000; fi
        ip -n "$(namespace "$dir" $host)" address add "$(address $host)/24" dev net0
        ip -n "$(namespace "$dir" $host)" link set net0 up
    done
    if [[ -e $dir/delay ]]; then shape "$dir"; fi
    ;;
down)
    dir=$2
    for host in a b; do
        for pid in $(ip netns pids "$(namespace "$dir" $host)" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null || true; done
        ip netns del "$(namespace "$dir" $host)" 2>/dev/null || true
        rm -rf "/etc/netns/$(namespace "$dir" $host)"
        umount "$dir/$host.uts" 2>/dev/null || true
    done
    if [[ -e $dir/relay.pid ]]; then kill "$(cat "$dir/relay.pid")" 2>/dev/null || true; fi
    ;;
on) enter "${@:2}" ;;
mpirun)
    dir=$2
    shift 2
    enter "$dir" a env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$(dirname "$me")/../../tools/mpirun" \
        --net 10.77.0.0/24 --mca orte_tmpdir_base "$(mktemp -d "$dir/job.XXXXXX")" --mca plm_rsh_agent "$me agent" --mca pml ob1 --mca btl tcp,self "$@"
    ;;
agent)
    host=$2
    shift 2
    # ssh hands its words to a shell there.
    enter "$CLEAVE_TWO_HOSTS" "$host" bash -c "$*"
    ;;
rate) shape "$2" rate "$3" ;;
cut)
    case $3 in
    both) ip -n "$(namespace "$2" a)" link set net0 down ;;
    # Its frames carry the address of a card that is not there: the other's still arrive.
    a) ip -n "$(namespace "$2" a)" neighbour replace 10.77.0.2 lladdr 02:00:00:00:00:99 dev net0 nud permanent ;;
    b) ip -n "$(namespace "$2" b)" neighbour replace 10.77.0.1 lladdr 02:00:00:00:00:99 dev net0 nud permanent ;;
    none)
        ip -n "$(namespace "$2" a)" link set net0 up
        for host in a b; do ip -n "$(namespace "$2" $host)" neighbour flush dev net0 nud permanent; done
        ;;
    esac
    ;;
processes) for host in a b; do ip netns pids "$(namespace "$2" $host)"; done ;;
*) sed -n '3,15p' "$me"; exit 1 ;;
esac
