#!/bin/bash
# Serves bench.test with one worker for measurements beside other servers, in the foreground. `make peers` calls it.
#
# In the environment: PORT to listen on, UPSTREAM port to proxy to, C folder of certificates, WWW folder of files,
# BODY of the fixed response, D scratch folder; EARLY=on takes early data, STATEFUL=true keeps TLS 1.3 sessions.
set -euo pipefail
: "${PORT:?}" "${UPSTREAM:?}" "${C:?}" "${WWW:?}" "${BODY:?}" "${D:?}"

peers=$(cd "$(dirname "$0")/peers" && pwd)
. "$peers/settings"
STATEFUL=${STATEFUL:-false} EARLY_ROUTE=no
[ "${EARLY:-off}" = off ] || EARLY_ROUTE=safe
export STATEFUL EARLY_ROUTE PORT UPSTREAM C WWW BODY D NAME SESSION_LIFETIME SESSIONS BACKLOG IDLE CONNECTIONS
envsubst < "$peers/servers/brisk.toml" > "$D/brisk.toml"
exec "${CARGO_TARGET_DIR:-$HOME/.cache/brisk/target}/release/brisk" serve --config "$D/brisk.toml"
