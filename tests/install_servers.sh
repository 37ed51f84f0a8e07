#!/bin/sh
# Install redis-server, and openssl for certificates, where that is possible; tests that need them say
# so where it is not.
command -v redis-server >/dev/null && command -v openssl >/dev/null && exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -q redis-server openssl >/dev/null 2>&1 ||
    { apt-get update -q >/dev/null 2>&1 && apt-get install -y -q redis-server openssl >/dev/null 2>&1; }
service redis-server stop >/dev/null 2>&1
exit 0
