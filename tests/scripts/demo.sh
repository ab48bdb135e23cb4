#!/bin/sh
# The demo: a host, the sample handlers, and real jobs in every way a job can go.
# Usage: demo.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

gristmill=$1
guests=$2
data=$(mktemp -d)
host_log=$data/host.log
. "$(dirname -- "$0")/host.sh"
trap 'stop_host; rm -rf "$data"' EXIT
trap 'exit 130' INT TERM

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
title() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
# Shows a command as a user would type it, then runs it.
show() {
  printf '$ gristmill'
  for word in "$@"; do
    case $word in
      "$guests"/*) printf ' %s' "${word##*/}" ;;
      *[!A-Za-z0-9_./:=-]*) printf " '%s'" "$word" ;;
      *) printf ' %s' "$word" ;;
    esac
  done
  printf '\n'
  "$gristmill" "$@"
}
# The same for a command that must fail.
show_failure() { if show "$@"; then echo "this should have failed" >&2; exit 1; fi; }

title "A host on an empty directory"
start_host "$data/store" 127.0.0.1:0
echo "$ gristmill serve   (on $GRISTMILL_URL)"

title "Deploy: handlers become endpoints"
for name in echo word-count token-stream chat thumbnail playground; do
  show deploy "$guests/$(echo "$name" | tr - _).wasm" --name "$name" --workers-max 4 --json >"$data/deployed"
  echo "$ gristmill deploy $(echo "$name" | tr - _).wasm --name $name"
done 2>&1 | grep '^\$'

title "A job, waiting for its result"
show submit echo --input '{"hello":"mill","n":9007199254740993}' --wait
show submit word-count --input '{"text":"to be or not to be"}' --wait

title "A job, coming back for its result"
printf "$ gristmill submit playground --input '%s'\n" '{"op":"sleep","ms":300,"value":"later"}'
job=$("$gristmill" submit playground --input '{"op":"sleep","ms":300,"value":"later"}')
echo "$job"
show status playground "$job"
sleep 0.6
show status playground "$job"

title "A job that streams"
job=$("$gristmill" submit token-stream --input '{"prompt":"one token after the other","max_tokens":8}')
show stream token-stream "$job"

title "A chat completion: the input that /openai/* makes of a call of OpenAI's clients"
show submit chat --wait --input '{"openai_route":"/v1/chat/completions","openai_input":{"model":"gristmill-markov","seed":4,"max_tokens":20,"messages":[{"role":"user","content":"How is bread made?"}]}}'

title "A handler that never ends, cancelled"
job=$("$gristmill" submit playground --input '{"op":"spin"}')
sleep 0.3
show status playground "$job"
show cancel playground "$job"
show status playground "$job"

title "Handlers that misbehave end their own job"
for op in '{"op":"trap"}' '{"op":"recurse"}' '{"op":"alloc","mib":1024}' '{"op":"exit","code":1}' '{"op":"fail","message":"no more flour"}'; do
  show_failure submit playground --input "$op" --wait
done

title "A failed job, run again"
job=$("$gristmill" submit playground --input '{"op":"fail","message":"try me again"}')
sleep 0.3
show retry playground "$job"
sleep 0.3
show status playground "$job"

title "A queue, purged"
for i in 1 2 3 4 5 6 7; do
  "$gristmill" submit playground --input '{"op":"sleep","ms":1500}' >/dev/null
done
show health playground
show purge playground
sleep 1.7

title "Power failure: kill -9 while four jobs run and two wait, then a new start"
jobs=
for i in 1 2 3 4 5 6; do
  jobs="$jobs $("$gristmill" submit playground --input "{\"op\":\"sleep\",\"ms\":800,\"value\":$i}")"
done
sleep 0.2
stop_host -KILL
echo "$ kill -9 <host>"
start_host "$data/store" "$address"
echo "$ gristmill serve   (the same directory)"
sleep 3.5
for job in $jobs; do show status playground "$job"; done

title "A key for one endpoint, and a health report"
show keys create --name demo --scope submit --endpoint echo
show health playground

title "The web console of this host"
show console
if [ -t 0 ] && [ -t 1 ]; then
  echo "Open the link in a browser on this machine. Enter: another link. Ctrl-C: stop the host and delete its data."
  while read -r _; do show console; done
fi

title "Stop: the host drains"
stop_host
echo "done"
