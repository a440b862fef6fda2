#!/usr/bin/env bash
# Puts load from AIPerf, a public tool, on the demo: once through round-robin, once through CART, each from empty caches.
# Usage: load.sh DEMO FOLDER, the demo's binary and where AIPerf's reports go. It fails if a request does, or if CART finds
# no more in the caches than round-robin.
set -euo pipefail
demo=$1
out=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
python=${PYTHON:-python3}

packages=$(bash "$root/tools/fetch-clients" load)
export PYTHONPATH=$packages
mkdir -p "$out"
out=$(cd "$out" && pwd)
[[ -f $out/tokenizer/tokenizer.json ]] || "$python" "$here/tokenizer.py" "$out/tokenizer" 2>/dev/null

(cd "$root/e2e" && KEEP=1 NO_COLOR=1 exec "$demo") >"$out/demo.log" 2>&1 &
stage=$!
trap 'kill "$stage" 2>/dev/null; wait "$stage" || true' EXIT
until grep -q 'Still running' "$out/demo.log"; do
  kill -0 "$stage" 2>/dev/null || { cat "$out/demo.log"; exit 1; }
  sleep 0.2
done
front=$(sed -n 's/.*curl -i \(http:[^ ]*\)\/v1.*/\1/p' "$out/demo.log")
replicas=$(sed -n 's/^ *replicas *//p' "$out/demo.log" | head -n 1)

forget() { # every replica's cache
  local port
  for port in $(grep -o ':[0-9]\{2,\}' <<<"$replicas"); do
    "$python" -c 'import sys, urllib.request; urllib.request.urlopen(urllib.request.Request(sys.argv[1], b""))' \
      "http://127.0.0.1$port/reset_prefix_cache"
  done
}

profile() { # NAME URL: 32 system prompts, shared by 64 conversations of 4 turns, 12 at a time
  forget
  "$python" -c 'import sys; from aiperf.cli import app; sys.exit(app())' profile \
    --model demo --url "$2" --endpoint-type chat --streaming --tokenizer "$out/tokenizer" \
    --concurrency 12 --conversation-num 64 --conversation-turn-mean 4 --conversation-turn-stddev 0 \
    --prompt-prefix-pool-size 32 --prompt-prefix-length 3000 --prompt-input-tokens-mean 200 --prompt-output-tokens-mean 16 \
    --random-seed 1 --ui none --no-server-metrics --no-gpu-telemetry --output-artifact-dir "$out/$1" >"$out/$1.log" 2>&1 ||
    { tail -n 40 "$out/$1.log"; exit 1; }
}

profile roundRobin "$front/roundRobin"
profile threshold "$front"
"$python" "$here/summary.py" "$out" roundRobin threshold
