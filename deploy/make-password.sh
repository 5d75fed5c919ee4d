#!/bin/sh
# Makes the password of Redis, once: for the service as it is, for Redis as lines of its configuration.
set -eu
cd "${1:-/run/odometer}"
test -s redis-password && exit 0
password=$(head -c 32 /dev/urandom | sha256sum | cut -d ' ' -f 1)
# Who may read the volume may read these: only the containers of Redis and of the service have it.
printf 'requirepass %s\nmasterauth %s\n' "$password" "$password" >redis-auth.conf
printf '%s' "$password" >redis-password.new
chmod 0444 redis-auth.conf redis-password.new
mv redis-password.new redis-password # last, and in one step: there is never half a password
