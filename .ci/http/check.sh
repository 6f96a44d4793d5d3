#!/usr/bin/env bash
# Checks the HTTP interface of a running gateway with programs of others: spectral (the OpenAPI document), schemathesis
# (each route against the document) and axe in Chromium (the page). Needs Debian's chromium, npm, python3-venv,
# and the network for pinned packages.
#
#     .ci/http/check.sh [WEIR]     the program; target/release/weir otherwise
#
# Screenshots of the page, light and dark, on a phone and a screen, are in target/http/.
set -euo pipefail
cd "$(dirname "$0")/../.."
weir=$(realpath "${1:-target/release/weir}")
here=$PWD/.ci/http
out=$PWD/target/http
mkdir -p "$out"
work=$(mktemp -d)
gateways=()
cleanup() { for pid in "${gateways[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"; }
trap cleanup EXIT

[ -d "$out/npm/node_modules/axe-core" ] ||
  npm install --silent --no-audit --no-fund --prefix "$out/npm" @stoplight/spectral-cli@6.16.3 axe-core@4.14.1 playwright-core@1.65.1
[ -x "$out/venv/bin/st" ] || { python3 -m venv "$out/venv" && "$out/venv/bin/pip" install --quiet schemathesis==4.32.5; }

echo "=== spectral"
cat >"$work/ruleset.yaml" <<'RULES'
extends: ["spectral:oas"]
RULES
"$out/npm/node_modules/.bin/spectral" lint docs/reference/openapi.json --ruleset "$work/ruleset.yaml" --fail-severity=hint

# start FOLDER NAME: a gateway whose ready line is FOLDER/ready.
start() {
  (cd "$1" && exec "$weir" serve weir.toml --json >ready 2>log) &
  gateways+=($!)
  for _ in $(seq 100); do
    [ ! -s "$1/ready" ] || return 0
    sleep 0.1
  done
  cat "$1/log"
  return 1
}
field() { python3 -c 'import json,sys; print(json.loads(open(sys.argv[1]).readline())[sys.argv[2]])' "$1/ready" "$2"; }

# Behind the gateway is another one, so that there are two paths.
mkdir "$work/behind" "$work/front"
cat >"$work/behind/weir.toml" <<'TOML'
[iscsi]
listen = ["127.0.0.1:0", "127.0.0.1:0"]
[[volume]]
name = "disk"
file = "disk.img"
size = "64MiB"
[[target]]
name = "iqn.2026-11.org.example:behind"
luns = { 0 = "disk" }
TOML
start "$work/behind"
portals=$(python3 -c 'import json,sys; print(", ".join("\"%s\"" % one for one in json.loads(open(sys.argv[1]).readline())["portals"]))' "$work/behind/ready")
token=$("$weir" api token check --role admin --file "$work/front/tokens")
cat >"$work/front/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
[nbd]
unix = ["nbd.sock"]
exports = { remote = "remote" }
[http]
listen = "127.0.0.1:0"
tokens_file = "tokens"
[[upstream]]
name = "array"
target = "iqn.2026-11.org.example:behind"
portals = [$portals]
[[tenant]]
name = "web"
initiators = ["iqn.2026-11.org.example.host:web"]
objectives = [{ size = 4096, iops = 1000, p99 = "20ms" }]
[[volume]]
name = "remote"
upstream = "array"
log = "remote.log"
log_size = "32MiB"
[[volume]]
name = "disk"
file = "disk.img"
size = "64MiB"
[[target]]
name = "iqn.2026-11.org.example:front"
luns = { 0 = "remote", 1 = "disk" }
TOML
start "$work/front"
url=$(field "$work/front" http)
url=${url%/}

echo "=== schemathesis"
# The order to stop is left out: it does. `unsupported_method` wants 405 for TRACE with a body, which is refused as a body
# before the route is looked at.
(cd "$work" && "$out/venv/bin/st" run "$url/api/v1/openapi.json" --header "Authorization: Bearer $token" --rate-limit 80/s \
  --max-examples 25 --exclude-path /api/v1/stop --exclude-checks unsupported_method)
grep -q panicked "$work/front/log" && { cat "$work/front/log"; exit 1; }

echo "=== axe, screenshots, keyboard and a path that stalls"
# Another gateway: schemathesis may have disabled the paths of the first one, which the target behind must let go.
kill "${gateways[1]}"
wait "${gateways[1]}" || true
mkdir "$work/page"
cp "$work/front/weir.toml" "$work/front/tokens" "$work/page"
start "$work/page"
url=$(field "$work/page" http)
url=${url%/}
python3 "$here/reads.py" "$work/page/nbd.sock" remote &
gateways+=($!)
NODE_PATH="$out/npm/node_modules" node "$here/page.cjs" "$url" "$token" "$out" "${gateways[0]}"
echo "the HTTP interface has no findings"
