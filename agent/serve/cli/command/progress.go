package command

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// Progress shows on a terminal how far something is, until done is called. Elsewhere it shows
// nothing.
func Progress(env *Env, what string) (told func(n, all int), done func()) {
	if env.Terminal == nil {
		return nil, func() {}
	}
	return text.Progress(env.Terminal, what, time.Now)
}

// LongClient is a client that shows what it waits for.
func LongClient(env *Env) (c *client.Client, done func()) {
	c = env.Client()
	c.Progress, done = Progress(env, "looking at what changes on proxies")
	return c, done
}
