#!/usr/bin/env bash
# make test: gets what the tests need and runs the packages given, or all.
source "$(dirname "$0")/env.sh"
need_python
cd "$root"

# System packages, where this may install them: a browser for the page, the
# tools that make network namespaces and break them.
missing=()
[ -x /usr/bin/chromium ] || missing+=(chromium)
command -v ip >/dev/null || missing+=(iproute2)
command -v nft >/dev/null || missing+=(nftables)
command -v curl >/dev/null || missing+=(curl)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  say "installing ${missing[*]}"
  log=$(mktemp)
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; say "could not install ${missing[*]}"; rm -f "$log"; [ -z "${LLMGW_CI:-}" ] || exit 1; }
  rm -f "$log"
fi

# A real engine and a real model, got by the daemon's own ways; the tests of
# single packages find them by these variables.
state=$(mktemp -d)
"$llmgw" --state-dir "$state" up --api 127.0.0.1:0 --mesh 127.0.0.1:0 --no-mdns 2>"$state/log" &
daemon=$!
finish() { kill -TERM "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true; rm -rf "$state"; }
trap finish EXIT
await_daemon "$state" "$daemon" || { cat "$state/log" >&2; say 'the daemon did not start'; exit 1; }
"$llmgw" --state-dir "$state" engines install llamacpp >&2
"$llmgw" --state-dir "$state" pull "$model_source" --as smollm2 >&2
LLMGW_TEST_LLAMA_SERVER=$("$llmgw" --state-dir "$state" --json engines ls | python3 -c 'import json,sys
print(next(e["path"] for e in json.load(sys.stdin)["engines"] if e["name"] == "llamacpp"))')
LLMGW_TEST_GGUF=$(find "$state" -type f -name 'sha256-b179c952*' | head -n 1)
export LLMGW_TEST_LLAMA_SERVER LLMGW_TEST_GGUF

(cd ui/web && npm test)
# One package at a time: the lab measures, and two cores are not many. What the
# clients found is printed last.
export LLMGW_CLIENTS_REPORT=$state/clients
code=0
go test -timeout 30m -p 1 "${@:-./...}" || code=$?
[ ! -s "$LLMGW_CLIENTS_REPORT" ] || cat "$LLMGW_CLIENTS_REPORT"
exit "$code"
