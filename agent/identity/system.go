package identity

import "os"

// systemAuthorities are the files in which systems keep the authorities that they trust: Debian and Alpine, Fedora, SUSE,
// OpenELEC.
var systemAuthorities = [...]string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// SystemCA returns the file of the authorities that the system trusts; "" where none is found.
func SystemCA() string {
	for _, path := range systemAuthorities {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
