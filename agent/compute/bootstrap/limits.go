package bootstrap

import (
	"bytes"
	"fmt"
)

// writeOverload writes the overload manager, which limits the resources that clients can use.
func (o *Options) writeOverload(b *bytes.Buffer) {
	if o.MaxConnections == 0 && o.MaxHeapBytes == 0 {
		return
	}
	b.WriteString("overload_manager:\n  refresh_interval: 0.25s\n  resource_monitors:\n")
	if o.MaxConnections > 0 {
		fmt.Fprintf(b, connectionsText, o.MaxConnections)
	}
	if o.MaxHeapBytes > 0 {
		fmt.Fprintf(b, heapText, o.MaxHeapBytes)
	}
}

const (
	connectionsText = `  - name: envoy.resource_monitors.global_downstream_max_connections
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig
      max_active_downstream_connections: %d
`
	heapText = `  - name: envoy.resource_monitors.fixed_heap
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig
      max_heap_size_bytes: %d
  actions:
  - name: envoy.overload_actions.shrink_heap
    triggers:
    - name: envoy.resource_monitors.fixed_heap
      threshold: {value: 0.95}
  - name: envoy.overload_actions.stop_accepting_requests
    triggers:
    - name: envoy.resource_monitors.fixed_heap
      threshold: {value: 0.98}
`
	// Kuma's dashboards select by these tags; the names and patterns are Kuma's.
	statsTagsText = `stats_config:
  stats_tags:
  - {tag_name: name, regex: '^grpc\.((.+)\.)'}
  - {tag_name: status, regex: '^grpc.*streams_closed(_([0-9]+))'}
  - {tag_name: kafka_name, regex: '^kafka(\.(\S*[0-9]))\.'}
  - {tag_name: kafka_type, regex: '^kafka\..*\.(.*)'}
  - {tag_name: worker, regex: '(worker_([0-9]+)\.)'}
  - {tag_name: listener, regex: '((.+?)\.)rbac\.'}
`
)
