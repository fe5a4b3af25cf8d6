#!/usr/bin/env bash
# A tour of device onboarding through every path of its workflow, over HTTP, with real services and a server that is killed
# on the way. Checks each outcome, and that every piece of work took effect once. Usage: examples/tours/onboarding.sh
# Needs curl 7.82, jq and Python 3.11. Everything is in a temporary folder, and all processes end with the tour.
set -euo pipefail
cd "$(dirname "$0")/../.."
abide=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/abide
[ -x "$abide" ] || cargo build --quiet --locked --package abide
tour=$PWD/examples/tours/onboarding
work=$(mktemp -d)
server= services=
trap 'kill $server $services 2>/dev/null || true; wait; rm -rf "$work"' EXIT

# --- processes -------------------------------------------------------------------------------------------------------

# address_in FILE PID: the first URL that a process prints.
address_in() {
  until grep -o 'http://[0-9.:]*' "$1" | head -n 1 | grep .; do
    kill -0 "$2" || { cat "$1" "$work/log" >&2; return 1; }
    sleep 0.05
  done
}

start_services() {
  : >"$work/services"
  DB="$work/services.db" PORT=0 python3 "$tour/services.py" >"$work/services" &
  services=$!
  target=$(address_in "$work/services" "$services")
}

start_server() {
  : >"$work/server"
  ABIDE_LOG=warn "$abide" serve --config "$work/abide.toml" >"$work/server" 2>>"$work/log" &
  server=$!
  api=$(address_in "$work/server" "$server")/api
}

# --- requests --------------------------------------------------------------------------------------------------------

call() { curl --silent --show-error --fail-with-body "$@"; }

# event ID TYPE DEVICE [SAYS]: one CloudEvent.
event() {
  jq --null-input --compact-output --arg id "$1" --arg type "$2" --arg device "$3" --arg says "${4-}" \
    '{specversion: "1.0", source: "/tour", id: $id, type: $type, subject: $device, data: {says: $says}}'
}

# send EVENT…: raises events in one request.
send() {
  printf '%s\n' "$@" | jq --slurp . |
    call "$api/events" -H 'Content-Type: application/cloudevents-batch+json' --data @- >"$work/answer"
}

# until_status INSTANCE STATUS [RUN]: waits until the run, by default the first, has the status.
until_status() {
  for _ in $(seq 600); do
    call "$api/instances/$1" >"$work/instance" || true
    [ "$(jq --raw-output '.data | .executionId + " " + .status' "$work/instance")" = "$1/${3-1} $2" ] && return
    sleep 0.1
  done
  echo "tour: $1 is not $2:" >&2
  jq . "$work/instance" >&2
  return 1
}

# waits INSTANCE: waits until the run waits for its event.
waits() {
  for _ in $(seq 600); do
    call "$api/instances/$1" >"$work/instance" || true
    jq --exit-status '.data.currentStates | tostring | contains("WaitForExternalProcess")' "$work/instance" >/dev/null &&
      return
    sleep 0.05
  done
  echo "tour: $1 does not wait" >&2
  return 1
}

# --- checks ----------------------------------------------------------------------------------------------------------

# effects INSTANCE ACTIVITY…: exactly these activities took effect for the instance, in this order.
effects() {
  local took
  took=$(python3 - "$work/services.db" "$1" <<'PYTHON'
import sqlite3, sys
rows = sqlite3.connect(sys.argv[1]).execute(
    "SELECT activity FROM effects WHERE execution_id LIKE ? || '/%' ORDER BY rowid", (sys.argv[2],))
print(*(activity for (activity,) in rows))
PYTHON
  )
  [ "$took" = "${*:2}" ] && return
  printf 'tour: %s had the effects\n  %s\nbut must have\n  %s\n' "$1" "$took" "${*:2}" >&2
  return 1
}

done_with() { printf '  ✓ %s\n' "$1"; }

# --- the tour --------------------------------------------------------------------------------------------------------

cat >"$work/abide.toml" <<TOML
[server]
listen = "127.0.0.1:0"
[store]
data = "$work/data"
[dispatch]
allow = ["127.0.0.1"]
TOML
start_services
start_server

for name in RollbackOnboardingRecord CreateOnboardingRecord ProcessDeviceEvents UpdateExternalSystem \
  NotifyOnboardingFailure NotifyOperations; do
  call --request PUT "$api/activities/$name" --json "{
    \"category\": \"database\", \"transport\": \"rest\", \"endpoint\": \"$target/activities/$name\"}" >"$work/answer"
done
call "$api/workflows" --json "@$tour/workflow.json" >"$work/answer"
# The same definition with two seconds instead of 48 hours, for the path that the silence takes.
jq '.id = "impatient-onboarding" | .states.WaitForExternalProcess.timeout = "PT2S"' "$tour/workflow.json" |
  call "$api/workflows" --json @- >"$work/answer"
route() { call --request PUT "$api/routes/$1" --json "$2" >"$work/answer"; }
workflow=device-onboarding-workflow
route device.joined '{"entityType": "device", "action": "startOrRaise", "workflow": "'$workflow'"}'
route device.reported '{"entityType": "device", "action": "record"}'
route device.ready '{"entityType": "device", "action": "raise", "workflow": "'$workflow'",
  "eventName": "ExternalProcessComplete"}'
route device.hurried '{"entityType": "device", "action": "start", "workflow": "impatient-onboarding"}'

echo "onboarding over HTTP, every path:"

send "$(event 1 device.joined patient)"
waits "patient~$workflow"
send "$(event 2 device.reported patient warm)" "$(event 3 device.reported patient hot)"
kill -9 "$server" && wait "$server" 2>/dev/null || true
start_server
send "$(event 3 device.reported patient hot)"
jq --exit-status '.data.items[0].status == "duplicate"' "$work/answer" >/dev/null
send "$(event 4 device.ready patient)"
until_status "patient~$workflow" Completed
effects "patient~$workflow" CreateOnboardingRecord ProcessDeviceEvents UpdateExternalSystem
done_with "collects events, survives kill -9 while it waits, recognises a repeated event, completes"

send "$(event 1 device.joined early)" "$(event 2 device.ready early)"
until_status "early~$workflow" Completed
effects "early~$workflow" CreateOnboardingRecord ProcessDeviceEvents UpdateExternalSystem
done_with "keeps an event that arrives before anybody waits for it"

send "$(event 1 device.joined busy)" "$(event 2 device.reported busy busy)" "$(event 3 device.ready busy)"
send "$(event 1 device.hurried silent)"
send "$(event 1 device.joined refused)"
until_status "refused~$workflow" Failed
effects "refused~$workflow"
done_with "fails when the first step fails, and compensates nothing"

send "$(event 1 device.joined damaged)" "$(event 2 device.reported damaged damaged)" "$(event 3 device.ready damaged)"
until_status "damaged~$workflow" Failed
effects "damaged~$workflow" CreateOnboardingRecord RollbackOnboardingRecord NotifyOnboardingFailure
done_with "rolls back and notifies when the events cannot be processed"

until_status silent~impatient-onboarding Failed
effects silent~impatient-onboarding CreateOnboardingRecord NotifyOperations RollbackOnboardingRecord \
  NotifyOnboardingFailure
done_with "tells the operators and rolls back when the external process is silent"

until_status "busy~$workflow" Completed
effects "busy~$workflow" CreateOnboardingRecord ProcessDeviceEvents UpdateExternalSystem
done_with "repeats a step whose service is busy"

send "$(event 5 device.joined patient)" "$(event 6 device.ready patient)"
until_status "patient~$workflow" Completed 2
done_with "starts a second run of a device whose first has ended"

send "$(event 1 device.lost stray)"
jq --exit-status '.data.items[0].status == "deadLettered"' "$work/answer" >/dev/null
done_with "dead-letters an event that no route knows"

kill "$server" && wait "$server"
"$abide" fsck --data "$work/data" >"$work/fsck" || { cat "$work/fsck" >&2; exit 1; }
tail -n 1 "$work/fsck" | sed 's/^/  ✓ fsck: /'
