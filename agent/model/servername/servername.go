// Package servername returns the TLS server names (SNI) by which proxies of a mesh request
// services. The names equal those of Kuma, whose zone proxies route by them. The package is pure.
package servername

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// MaxLength is the limit of Envoy's field, in bytes.
const MaxLength = 255

// Of returns the server name that a client sends. Kuma's zone ingresses route by it. It returns
// "" if the name is longer than Envoy allows.
func Of(meshName string, o *mesh.Outbound) string {
	if o.Service.ID.Kind != mesh.KindTag {
		return ofResource(meshName, o.Service)
	}
	list := make([]string, 0, 8)
	list = append(list, "mesh="+meshName)
	for k, v := range o.Subset {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	sni := o.Service.ID.Name + "{" + strings.Join(list, ",") + "}"
	if len(sni) > MaxLength {
		return ""
	}
	return sni
}

// ofResource returns the server name of one port of a MeshService resource: a hash of everything,
// then as much text as fits into the labels of a DNS name.
func ofResource(meshName string, s *mesh.Service) string {
	short := map[string]string{mesh.KindMeshService: "ms", mesh.KindMeshExternalService: "mes",
		mesh.KindMeshMultiZoneService: "mzms"}[s.ID.Kind]
	h := fnv.New64a()
	fmt.Fprintf(h, "%s;%s;", s.FullName, meshName)
	label := func(name string) string {
		if len(name) > 62 {
			return name[:62] + "x"
		}
		return name
	}
	return fmt.Sprintf("a%s.%s.%d.%s.%s", hex.EncodeToString(h.Sum(nil)), label(s.FullName), s.Port,
		label(meshName), short)
}
