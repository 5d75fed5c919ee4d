#!/bin/sh
# Makes a cluster of the six nodes named as address:port, three of them replicas; of nodes that are one already,
# it only waits until they serve.
set -eu
REDISCLI_AUTH=$(cat "${PASSWORD_FILE:-/run/odometer/redis-password}")
export REDISCLI_AUTH
WAIT_S=60

ask() { # address:port, then the command
  node=$1
  shift
  redis-cli -h "${node%:*}" -p "${node#*:}" "$@" | tr -d '\r'
}

until_says() { # address:port, a line that the answer must have, then the command
  node=$1 line=$2 waited=0
  shift 2
  until ask "$node" "$@" | grep -qx "$line"; do
    if [ "$waited" -ge "$WAIT_S" ]; then
      echo "$node did not say $line within $WAIT_S s. Nothing was changed since; look at: docker compose logs" >&2
      exit 1
    fi
    waited=$((waited + 1))
    sleep 1
  done
}

if ask "$1" cluster info | grep -qx 'cluster_known_nodes:1'; then
  # It refuses nodes that hold keys or know others: a cluster that lost one node's volume is not made anew.
  redis-cli --cluster create "$@" --cluster-replicas 1 --cluster-yes
  for node in "$@"; do
    case $(ask "$node" role | head -n 1) in
    master) until_says "$node" 'connected_slaves:1' info replication ;;
    *) until_says "$node" 'master_link_status:up' info replication ;;
    esac
  done
fi
for node in "$@"; do
  until_says "$node" 'cluster_state:ok' cluster info
done
echo "the cluster serves"
