#!/usr/bin/env bash
# make bench: figures are ratios against a baseline of the same run.
source "$(dirname "$0")/env.sh"
cd "$root"

# nginx is what a local relay is compared with; where it cannot be had, the
# benchmark says so and goes on.
if ! command -v nginx >/dev/null && [ ! -x /usr/sbin/nginx ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  say 'installing nginx-light'
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends nginx-light; } >/dev/null 2>&1 ||
    say 'could not install nginx-light'
fi

LLMGW_BENCH_TABLE=$(mktemp)
export LLMGW_BENCH_TABLE
trap 'rm -f "$LLMGW_BENCH_TABLE"' EXIT
go test -run '^$' -bench . -benchtime 1x -timeout 30m ./node/lab/
go test -run '^$' -bench 'MergeAgainst|Update$' -benchtime 1x ./crdt/store
go test -run '^$' -bench Scale -benchtime 1x ./crdt/crdtsim
go test -run '^$' -bench 'Index|Pick' -benchtime 1x ./router/affinity
printf '\n%s\n' 'The relay, each figure against the others of its own run:'
cat "$LLMGW_BENCH_TABLE"
