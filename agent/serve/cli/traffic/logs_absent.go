package traffic

import (
	"context"
	"fmt"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// without returns an error if there are no files of access logs. With --follow, it prints a note
// instead, unless the dataplane does not exist.
func (f *logsFlags) without(ctx context.Context, env *command.Env) error {
	of := ""
	switch {
	case f.dataplane != "":
		if _, err := env.Client().Proxy(ctx, f.mesh, f.dataplane); err != nil {
			return err
		}
		of = fmt.Sprintf(" of dataplane %s in mesh %s", f.dataplane, f.mesh)
	case f.mesh != "":
		of = " of mesh " + f.mesh
	}
	err := command.Hinted(fmt.Errorf("this agent writes no access logs%s to files", of), "the agent writes "+
		"file backends of MeshAccessLog below paths.logs when a proxy uses them; --file PATH reads a file that Envoy writes")
	if f.follow {
		text.Printf(env.Stderr, "waiting: %v\n", err)
		return nil
	}
	return err
}
