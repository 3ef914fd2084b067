#!/bin/sh
# Runs the agent with the quickstart in the foreground. Usage: examples/quickstart/run.sh [BINARY]
# [DATADIR]
set -eu
binary=${1:-bin/nearside}
data=${2:-nearside-data}
case $data in /*) ;; *) data=$(pwd)/$data ;; esac
cat >&2 <<TEXT
The agent runs in this terminal; stop it with Ctrl-C. It serves
  $data/run/nearside.sock   the API, for the commands below
  $data/run/xds.sock        xDS, for Envoys
The web of the example dials its services at its own Envoy, on 127.0.0.1:20001 (backend), :20002 (redis) and :20003
(greeter). The agent watches examples/quickstart/resources: change a file there, or break one, and look at
the status again.

In another terminal:
  export NEARSIDE_SOCKET=$data/run/nearside.sock
  $binary status
  $binary get dataplanes
  $binary inspect dataplane web --type=config -o yaml
  $binary bootstrap --name web        # the initial config of an Envoy
  $binary history dataplane web

TEXT
exec "$binary" run --config examples/quickstart/agent.yaml \
  --set "paths.run=$data/run" --set "paths.state=$data/state" --set "paths.logs=$data/logs"
