#!/bin/bash
# Preloads snowflake_id, and turns variables of the container into settings, before the entry script
# of the official image:
#
#   SNOWFLAKE_WORKER_ID or SNOWFLAKE_REGISTRY, SNOWFLAKE_DATACENTER_ID, SNOWFLAKE_LAYOUT,
#   SNOWFLAKE_BACKUP_WORKER, SNOWFLAKE_FLEET
#
# They stand first on the command line, so that an argument of the container wins. A value that is
# wrong ends the server's start. Options that PostgreSQL takes only as its first are left first.
set -euo pipefail

if [ $# = 0 ] || [[ $1 = -* ]]; then
    set -- postgres "$@"
fi
first='^(--(version|help|describe-config|single|boot|check)|-V|-[?])$'
if [ "$1" = postgres ] && ! [[ ${2:-} =~ $first ]]; then
    shift
    settings=(-c shared_preload_libraries=snowflake_id)
    for name in worker_id registry datacenter_id layout backup_worker fleet; do
        variable=SNOWFLAKE_${name^^}
        [ -z "${!variable:-}" ] || settings+=(-c "snowflake_id.$name=${!variable}")
    done
    set -- postgres "${settings[@]}" "$@"
fi
exec docker-entrypoint.sh "$@"
