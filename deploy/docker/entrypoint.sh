#!/bin/sh
# Looks at the limit of open files, then starts Traefik as the base image does, with the same arguments.
#
# Each request that is being answered takes two files, one to the client and one to the replica; with Docker's or systemd's
# lowest limits connections fail under load, which looks like a fault of the replicas. So:
#
#   CART_FEW_FILES=warn    (default) says so and starts all the same: a proxy that serves few is worth more than one that does
#                          not start, and not everybody can change the limit of the host
#   CART_FEW_FILES=refuse  exits with status 78, for those who would rather not find out under load
#
# TRAEFIK_ENTRYPOINT is the base image's own entry point, in case it is not /entrypoint.sh.
set -eu

want=65535
policy=${CART_FEW_FILES:-warn}
case $policy in
  warn | refuse) ;;
  *)
    echo "cart: CART_FEW_FILES = \"$policy\" is not allowed (want warn or refuse)" >&2
    exit 78
    ;;
esac

# few tells whether a limit, a number or "unlimited", is too low.
few() {
  [ "$1" != unlimited ] && [ "$1" -lt "$want" ]
}

# The soft limit may be raised up to the hard one.
if few "$(ulimit -Sn)" && ! few "$(ulimit -Hn)"; then
  ulimit -Sn "$want"
fi
if few "$(ulimit -Hn)"; then
  echo "cart: ulimit -n is $(ulimit -Hn), want at least $want: connections fail under load" \
    "(docker run --ulimit nofile=$want:$want, or ulimits.nofile in a Compose file)" >&2
  [ "$policy" = warn ] || exit 78
fi

exec "${TRAEFIK_ENTRYPOINT:-/entrypoint.sh}" "$@"
