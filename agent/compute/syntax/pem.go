package syntax

import (
	"crypto/x509"
	"encoding/pem"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// PEMFault returns the fault in PEM certificates, or "".
func PEMFault(data []byte) string {
	n := 0
	for rest := data; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "the certificate cannot be read: " + clip.Value(err.Error())
		}
	}
	if n == 0 {
		return "there is no certificate in PEM"
	}
	return ""
}
