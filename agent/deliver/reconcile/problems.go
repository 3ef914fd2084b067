package reconcile

import (
	"context"
	"log/slog"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

func compareProblems(a, b api.Problem) int {
	for _, c := range [...]int{
		strings.Compare(a.Resource, b.Resource), strings.Compare(a.Severity, b.Severity), strings.Compare(a.Reason, b.Reason),
	} {
		if c != 0 {
			return c
		}
	}
	return 0
}

// maxLogged limits the problems that one pass logs; the status has all.
const maxLogged = 20

// logNew logs problems that are new since the last pass.
func (r *Reconciler) logNew(problems []api.Problem) {
	now := make(map[api.Problem]bool, len(problems))
	fresh := 0
	for _, p := range problems {
		now[p] = true
		if r.logged[p] {
			continue
		}
		if fresh++; fresh > maxLogged {
			continue
		}
		level := slog.LevelWarn
		if p.Severity == api.SeverityError {
			level = slog.LevelError
		}
		r.o.Log.Log(context.Background(), level, "problem with a resource", "resource", p.Resource, "reason", p.Reason)
	}
	if fresh > maxLogged {
		r.o.Log.Warn("more problems with resources were not logged; nearside status lists all", "more", fresh-maxLogged)
	}
	r.logged = now
}
