#!/usr/bin/env bash
# make bench: figures are ratios against a baseline of the same run.
source "$(dirname "$0")/env.sh"
cd "$root"
go test -run '^$' -bench . -benchtime 1x -timeout 30m ./node/lab/
