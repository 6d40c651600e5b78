#!/bin/bash
# A worker that reverses what it is given: http_worker.sh [SERVER] [FUNCTION].  Needs curl and rev.
server=${1:-http://127.0.0.1:4740}/v1 function=${2:-reverse}
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir" || exit 1
while curl -sf -X POST "$server/functions/$function/take?wait=30&lease=60" -D head -o payload; do
    job=$(sed -n 's/^Switchgear-Job: \(.*\)\r$/\1/p' head) attempt=$(sed -n 's/^Switchgear-Attempt: \(.*\)\r$/\1/p' head)
    [ "$job" ] || continue # 204: there was no job within 30 seconds
    if rev payload > result; then curl -sf -T result -H "Switchgear-Attempt: $attempt" "$server/jobs/$job/result"
    else curl -sf -d '{"error": "rev failed"}' -H "Switchgear-Attempt: $attempt" "$server/jobs/$job/fail"; fi
done
