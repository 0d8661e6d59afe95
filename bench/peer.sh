#!/bin/bash
# Serves bench.test with one worker for measurements beside other servers, in the foreground.
#
# In the environment: PORT to listen on, UPSTREAM port to proxy to, C folder of certificates, WWW folder of files,
# BODY of the fixed response, D scratch folder; EARLY=on accepts early data, STATEFUL=on keeps TLS 1.3 sessions.
set -euo pipefail
: "${PORT:?}" "${UPSTREAM:?}" "${C:?}" "${WWW:?}" "${BODY:?}" "${D:?}"

early=no stateful=false
[ "${EARLY:-off}" = on ] && early=safe
[ "${STATEFUL:-off}" = on ] && stateful=true

cat > "$D/brisk.toml" <<TOML
[server]
https = ["127.0.0.1:$PORT"]
workers = 1
state_dir = "$D/state"

[tls]
stateful = $stateful

[server.timeouts]
idle = "300s"

[keys]
rsa_threads = 1

[access_log]
format = "off"

[[host]]
names = ["bench.test", "localhost"]
certificates = [
  { chain = "$C/ecdsa.pem", key = "$C/ecdsa.key" },
  { chain = "$C/rsa.pem", key = "$C/rsa.key" },
]

[[host.route]]
path = "/static"
exact = true
respond = { body = "$BODY" }
early_data = "$early"

[[host.route]]
path = "/file/"
static = "$WWW"

[[host.route]]
path = "/"
upstream = "bench"

[upstream.bench]
servers = ["http://127.0.0.1:$UPSTREAM"]
TOML

exec "${CARGO_TARGET_DIR:-$HOME/.cache/brisk/target}/release/brisk" serve --config "$D/brisk.toml"
