#!/bin/sh
# Runs the agent on the quickstart in the foreground. usage: examples/quickstart/run.sh [BINARY] [DATADIR]
set -eu
binary=${1:-bin/nearside}
data=${2:-nearside-data}
cat >&2 <<TEXT
The agent runs in this terminal; stop it with Ctrl-C. It serves
  $data/run/nearside.sock   the API, for the commands below
  $data/run/xds.sock        xDS, for Envoys
and watches examples/quickstart/resources: change a file there and see it answer.

In another terminal:
  export NEARSIDE_SOCKET=$data/run/nearside.sock
  $binary status
  $binary get dataplanes
  $binary inspect dataplane web --type=config -o yaml
  $binary bootstrap --name web        # what an Envoy starts with
  $binary history dataplane web

TEXT
exec "$binary" run --config examples/quickstart/agent.yaml \
  --set "paths.run=$data/run" --set "paths.state=$data/state" --set "paths.logs=$data/logs"
