#!/usr/bin/env bash
# make run: a mesh of one in ./.run that serves a small real model.
source "$(dirname "$0")/env.sh"
need_python
cd "$root"
state=$root/.run
mkdir -p "$state" && chmod 700 "$state"
api=${LLMGW_API:-:8770}
mesh=${LLMGW_MESH:-:8771}
at() { "$llmgw" --state-dir "$state" "$@"; }

LLMGW_LOG_LEVEL=${LLMGW_LOG_LEVEL:-warn} at up --name "$(hostname -s)" --api "$api" --mesh "$mesh" &
daemon=$!
stop() { trap - INT TERM EXIT; kill -TERM "$daemon" 2>/dev/null || true; wait "$daemon" || true; }
trap 'stop; exit 130' INT TERM
trap stop EXIT
await_daemon "$state" "$daemon" || { say 'the daemon did not start; what it said is above'; exit 1; }

at engines install llamacpp
at models --json | grep -q '"id": "smollm2"' || at pull "$model_source" --as smollm2 --embeddings
at load smollm2 --wait
if [ ! -s "$state/dev-key" ]; then
  rm -f "$state/dev-key"
  (umask 077; at keys new make-run --scope infer,metrics > "$state/dev-key.new") && mv "$state/dev-key.new" "$state/dev-key"
fi

port=${api##*:}
ask() {
  curl -sS --fail-with-body "http://127.0.0.1:$port/v1/chat/completions" -H @- -H 'Content-Type: application/json' \
    -d '{"model":"smollm2","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}' <<<"Authorization: Bearer $(cat "$state/dev-key")"
}
answer=$(ask) || { say "the first question failed: $answer"; exit 1; }

cat <<TEXT

Ready. Ask it:

  curl -N http://127.0.0.1:$port/v1/chat/completions -H "Authorization: Bearer \$(cat $state/dev-key)" -H 'Content-Type: application/json' -d '{"model":"smollm2","stream":true,"messages":[{"role":"user","content":"Say hello in five words."}]}'

The page, by a link for one use within 15 minutes:

  $(at ui 2>/dev/null)

Stop it with Ctrl-C.
TEXT
wait "$daemon"
