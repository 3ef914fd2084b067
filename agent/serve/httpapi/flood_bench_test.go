package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// BenchmarkWrongTokens is the cost of one wrong token of many over TCP, each on a connection of its
// own, with that of the client that sends it. Verifying takes 100 µs.
func BenchmarkWrongTokens(b *testing.B) {
	verified := 0
	a := startTCP(b, func(o *httpapi.Options) {
		o.Access.Roles = rolesOf(b, access.RoleOptions{GID: -1})
		o.Access.Verify = func(string) (token.Claims, error) {
			verified++
			for end := time.Now().Add(100 * time.Microsecond); time.Now().Before(end); {
			}
			return token.Claims{}, io.ErrUnexpectedEOF
		}
	})
	addr := strings.TrimPrefix(a.base, "http://")
	before := processorTime(b)
	n := 0
	for b.Loop() {
		n++
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		fmt.Fprintf(c, "GET /meshes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %0400d\r\n\r\n", n)
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, " 4") {
			b.Fatal(line, err)
		}
		_ = c.Close()
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(n), "µs-processor/op")
	b.ReportMetric(float64(verified), "verified")
}

// processorTime is how long the process has computed.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
