#!/bin/bash
# Stands in for the entry script of the official image of PostgreSQL, which cannot be fetched where
# the tests run. Does what snowflake-entrypoint.sh and image/compose.yaml rely on: with the
# arguments of the server it makes a data directory and the database of POSTGRES_DB, runs the
# scripts of docker-entrypoint-initdb.d on a server without network, and starts the server in place
# of itself. Other commands run as they are. All that runs as the user who starts it, or as postgres
# if that is root.
#
# The official image listens on all addresses. Where containers share the network of a machine,
# LISTEN names the server's own address.
set -euo pipefail

[ "$1" = postgres ] || exec "$@"
if [ "$(id -u)" = 0 ]; then
    install -d -o postgres -g postgres -m 700 "$PGDATA"
    exec gosu postgres "$0" "$@"
fi
socket=/var/run/postgresql
[ -z "${LISTEN:-}" ] || set -- "$@" -c "listen_addresses=$LISTEN" -c "unix_socket_directories=$socket"
mkdir -p "$PGDATA"
chmod 700 "$PGDATA"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username=postgres --auth=trust >/dev/null
    # There, all other containers come from 127.0.0.1, which initdb trusts.
    [ -z "${LISTEN:-}" ] || sed -i '/^host/d' "$PGDATA/pg_hba.conf"
    [ -z "${POSTGRES_HOST_AUTH_METHOD:-}" ] || echo "host all all all $POSTGRES_HOST_AUTH_METHOD" >>"$PGDATA/pg_hba.conf"
    pg_ctl -D "$PGDATA" -w -o "$(printf '%q ' "${@:2}") -c listen_addresses=''" start >&2
    sql() { psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username=postgres --host="$socket" "$@"; }
    database=${POSTGRES_DB:-postgres}
    [ "$database" = postgres ] || sql --dbname=postgres --command="CREATE DATABASE \"$database\""
    for script in /docker-entrypoint-initdb.d/*; do
        case $script in
            *.sh) bash "$script" ;;
            *.sql) sql --dbname="$database" --file="$script" ;;
        esac
    done
    pg_ctl -D "$PGDATA" -m fast -w stop >/dev/null
fi
exec "$@"
