#!/bin/sh
# Asks over HTTP, as any client of OpenAI's API would: curl.sh "Why is the sky blue?"
# STOKER_URL is another door than that of the package; STOKER_SOCKET asks a unix socket.
set -eu

url=${STOKER_URL:-http://127.0.0.1:8470}
ask() {
    curl -sS --no-buffer ${STOKER_SOCKET:+--unix-socket "$STOKER_SOCKET"} "$@"
}

# Quotes and backslashes of the question are JSON's too.
question=$(printf %s "${1:-Why is the sky blue?}" | sed 's/[\\"]/\\&/g')
body="{\"messages\": [{\"role\": \"user\", \"content\": \"$question\"}]"

echo "models: $(ask "$url/v1/models")"
echo "whole answer:"
ask "$url/v1/chat/completions" -H 'Content-Type: application/json' -d "$body}"
echo
echo "as it is made:"
ask "$url/v1/chat/completions" -H 'Content-Type: application/json' -d "$body, \"stream\": true}"
