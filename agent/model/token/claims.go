package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Audiences of tokens.
const (
	AudienceXDS = "nearside-xds" // Envoys and other xDS clients
	AudienceAPI = "nearside-api" // clients of the HTTP API
)

// MaxValidity is the longest validity of a token.
const MaxValidity = 10 * 365 * 24 * time.Hour

// Limits of claims, in bytes and items.
const (
	maxMesh     = 63
	maxName     = 253
	maxSubject  = 317
	maxID       = 64
	maxServices = 64
)

// Claims are the claims of a token.
type Claims struct {
	ID      string // jti; Create generates it from 128 random bits
	Subject string // sub: the holder of the token, for logs and roles
	// Mesh and Name select the xDS node ids that the token allows: MESH.NAME, where Name is a glob
	// on names of Dataplanes such as "web-*". A proxy of a ZoneEgress or ZoneIngress has no mesh;
	// its Name is "egress.GLOB" or "ingress.GLOB". Both are empty in a token for the API. Name is
	// never empty in a token for xDS. See [Claims.NodeIDs].
	Mesh, Name string
	Services   []string // globs on the kuma.io/service values allowed in node metadata; empty: none
	Audience   string   // AudienceXDS or AudienceAPI
	KeyID      string   // kid of the signing key
	// Issued, NotBefore, and Expires have a resolution of one second.
	Issued, NotBefore, Expires time.Time
}

// NodeIDs returns a glob on the allowed xDS node ids, such as "default.web-*"; "" if there are
// none.
func (c *Claims) NodeIDs() string {
	if c.Audience != AudienceXDS || c.Name == "" {
		return ""
	}
	return c.Mesh + "." + c.Name
}

// Prefixes of Claims.Name in tokens for ZoneEgresses and ZoneIngresses.
const (
	EgressName  = "egress."
	IngressName = "ingress."
)

// Check reports all faults in the claims that a user sets. Each error names the claim, its value,
// and the allowed values. Create rejects the same claims.
func (c *Claims) Check() error {
	var faults []error
	fault := func(claim, value, allowed string) {
		faults = append(faults, fmt.Errorf("%s %s: %s", claim, quote(value), allowed))
	}
	if c.Subject == "" || len(c.Subject) > maxSubject || !only(c.Subject, "-._@:/+*", true) {
		fault("subject", c.Subject, fmt.Sprintf("want 1 to %d letters, digits and characters of -._@:/+*", maxSubject))
	}
	switch c.Audience {
	case AudienceAPI:
		if c.Mesh != "" || c.Name != "" || len(c.Services) > 0 {
			faults = append(faults, errors.New("a token for the API has no mesh, name, or services: to limit it, "+
				"give its subject a role in api.roles"))
		}
	case AudienceXDS:
		if c.Mesh != "" && (len(c.Mesh) > maxMesh || !only(c.Mesh, "-_", false) || !between(c.Mesh)) {
			fault("mesh", c.Mesh, fmt.Sprintf("want the name of one mesh: at most %d lower-case letters, digits, '-' and '_', "+
				"with a letter or digit at both ends", maxMesh))
		}
		if c.Name == "" || len(c.Name) > maxName || !only(c.Name, "-_.*", false) {
			fault("name", c.Name, fmt.Sprintf("want a glob on names of Dataplanes, such as \"web-*\": 1 to %d lower-case "+
				"letters, digits, '-', '_', '.' and '*'", maxName))
		} else if c.Mesh == "" && !zoneProxy(c.Name) {
			faults = append(faults, errors.New("mesh: required for the proxies of Dataplanes"))
		}
		if len(c.Services) > maxServices {
			faults = append(faults, fmt.Errorf("services: %d globs, at most %d are allowed", len(c.Services), maxServices))
		}
		for _, s := range c.Services {
			if s == "" || len(s) > maxName || !only(s, "-_.:/*", true) {
				fault("service", s,
					fmt.Sprintf("want a glob on values of kuma.io/service: 1 to %d letters, digits, '-', '_', '.', ':', '/' and '*'",
						maxName))
			}
		}
	default:
		fault("audience", c.Audience, fmt.Sprintf("want %q or %q", AudienceXDS, AudienceAPI))
	}
	return errors.Join(faults...)
}

// zoneProxy reports whether a name belongs to a zone proxy, which has no mesh.
func zoneProxy(name string) bool {
	for _, prefix := range [...]string{EgressName, IngressName} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" {
			return true
		}
	}
	return false
}

// only reports whether s consists of lower-case letters, digits, the characters of extra, and
// capitals if allowed.
func only(s, extra string, capitals bool) bool {
	for i := range len(s) {
		c := s[i]
		if !lowerOrDigit(c) && !(capitals && c >= 'A' && c <= 'Z') && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return true
}

// between reports whether s begins and ends with a lower-case letter or a digit.
func between(s string) bool { return lowerOrDigit(s[0]) && lowerOrDigit(s[len(s)-1]) }

func lowerOrDigit(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// payload is the body of a token. Decoding a hostile body before its signature is verified must be
// cheap, so lists remain bytes until then.
type payload struct {
	jwt.RegisteredClaims
	Audience audience        `json:"aud"` // a single audience, not a list
	Mesh     string          `json:"mesh,omitempty"`
	Name     string          `json:"name,omitempty"`
	Services json.RawMessage `json:"services,omitempty"`
}

// audience is the single audience of a token. This package creates no token with a list (RFC 7519,
// section 4.1.3).
type audience string

func (c *Claims) payload() (*payload, error) {
	p := &payload{
		RegisteredClaims: jwt.RegisteredClaims{
			ID: c.ID, Subject: c.Subject,
			IssuedAt: jwt.NewNumericDate(c.Issued), NotBefore: jwt.NewNumericDate(c.NotBefore),
			ExpiresAt: jwt.NewNumericDate(c.Expires),
		},
		Audience: audience(c.Audience), Mesh: c.Mesh, Name: c.Name,
	}
	if len(c.Services) == 0 {
		return p, nil
	}
	var err error
	p.Services, err = json.Marshal(c.Services)
	return p, err
}

// claims returns the claims of the token.
func (p *payload) claims(kid string) (Claims, error) {
	c := Claims{
		ID: p.ID, Subject: p.Subject, Mesh: p.Mesh, Name: p.Name, Audience: string(p.Audience), KeyID: kid,
		Issued: at(p.IssuedAt), NotBefore: at(p.NotBefore), Expires: at(p.ExpiresAt),
	}
	if len(p.Services) == 0 {
		return c, nil
	}
	return c, json.Unmarshal(p.Services, &c.Services)
}

// at returns the time of a claim in UTC. It is zero if the claim is missing, or if its year has no
// RFC 3339 form.
func at(d *jwt.NumericDate) time.Time {
	if d == nil || d.UTC().Year() < 0 || d.UTC().Year() > 9999 {
		return time.Time{}
	}
	return d.UTC()
}
