package generate

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// dataSource hands the proxy the bytes, or the file to read them from.
func dataSource(d *resource.DataSource) (*corev3.DataSource, error) {
	switch {
	case len(d.Inline) > 0:
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: d.Inline}}, nil
	case d.InlineString != "":
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(d.InlineString)}}, nil
	case d.File != "":
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: d.File}}, nil
	}
	return nil, fmt.Errorf("the secret %q cannot be read: this agent holds no secrets; use inline or file", d.Secret)
}
