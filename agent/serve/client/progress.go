package client

import (
	"context"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// ProblemTooLarge is the type of a [Problem] with a request that is larger than [MaxBody].
const ProblemTooLarge = httpapi.ProblemTooLarge

// MaxBody is how many bytes of documents an agent takes in one request.
const MaxBody = httpapi.MaxBody

// traced hears the interim answers of a request. Without a hook net/http takes but a few.
func (c *Client) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			text := header.Get(httpapi.ProgressHeader)
			done, all, _ := strings.Cut(text, "/")
			n, err := strconv.Atoi(done)
			of, err2 := strconv.Atoi(all)
			if c.Progress != nil && (text == httpapi.ProgressWaits || err == nil && err2 == nil) {
				c.Progress(n, of)
			}
			return nil
		},
	})
}
