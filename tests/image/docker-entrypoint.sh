#!/bin/bash
# Stands in for the entry script of the official image of PostgreSQL, which cannot be fetched where
# the tests run. Does what snowflake-entrypoint.sh relies on: with the arguments of the server it
# makes a data directory, runs the scripts of docker-entrypoint-initdb.d on a server without
# network, and starts the server in place of itself.
set -euo pipefail

[ "$1" = postgres ] || exec "$@"
install -d -o postgres -g postgres -m 700 "$PGDATA"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    gosu postgres initdb --username=postgres --auth=trust >/dev/null
    gosu postgres pg_ctl -D "$PGDATA" -w -o "$(printf '%q ' "${@:2}") -c listen_addresses=''" start >/dev/null
    for script in /docker-entrypoint-initdb.d/*.sql; do
        gosu postgres psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --file="$script"
    done
    gosu postgres pg_ctl -D "$PGDATA" -m fast -w stop >/dev/null
fi
exec gosu postgres "$@"
