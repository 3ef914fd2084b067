package client

import (
	"context"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// traced adds a hook for the informational responses (1xx) of a request. Without it, net/http
// limits their number.
func (c *Client) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			text := header.Get(api.ProgressHeader)
			done, all, _ := strings.Cut(text, "/")
			n, err := strconv.Atoi(done)
			of, err2 := strconv.Atoi(all)
			if c.Progress != nil && (text == api.ProgressWaits || err == nil && err2 == nil) {
				c.Progress(n, of)
			}
			return nil
		},
	})
}
