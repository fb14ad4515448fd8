#!/usr/bin/env bash
# make bench: figures are ratios against a baseline of the same run.
source "$(dirname "$0")/env.sh"
cd "$root"
go test -run '^$' -bench . -benchtime 1x -timeout 30m ./node/lab/
go test -run '^$' -bench 'MergeAgainst|Update$' -benchtime 1x ./crdt/store
go test -run '^$' -bench Scale -benchtime 1x ./crdt/crdtsim
go test -run '^$' -bench 'Index|Pick' -benchtime 1x ./router/affinity
