#!/bin/sh
# Install redis-server, openssl (for certificates), PostgreSQL and a browser where that is possible;
# tests that need them say so where it is not.
missing=
command -v redis-server >/dev/null || missing="redis-server"
command -v openssl >/dev/null || missing="$missing openssl"
command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 ||
    missing="$missing postgresql"
command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null ||
    missing="$missing chromium-headless-shell"
[ -z "$missing" ] && exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0
export DEBIAN_FRONTEND=noninteractive
for package in $missing; do
    apt-get install -y -q "$package" >/dev/null 2>&1 ||
        { apt-get update -q >/dev/null 2>&1 && apt-get install -y -q "$package" >/dev/null 2>&1; }
done
service redis-server stop >/dev/null 2>&1
exit 0
