package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// filesCheck is the name of the check whose problems fileProblems lists one by one.
const filesCheck = "resource-files"

// checkProblems returns the failed and degraded checks of the agent.
func checkProblems(_ context.Context, f *Facts) (out []api.Problem) {
	for _, c := range f.Status.Checks {
		if c.OK && !c.Degraded || c.Name == filesCheck && len(f.Status.Files) > 0 {
			continue
		}
		p := api.Problem{Severity: api.SeverityWarning, Check: c.Name, Reason: c.Reason, Command: c.Command, Unready: !c.OK}
		if !c.OK || c.Error {
			p.Severity = api.SeverityError
		}
		out = append(out, p)
	}
	return out
}

// damagedProblems returns the resources that cannot be read from the state file.
func damagedProblems(_ context.Context, f *Facts) (out []api.Problem) {
	for i := range f.Status.Store.Damaged {
		x := &f.Status.Store.Damaged[i]
		k := resource.Key{Kind: x.Type, Mesh: x.Mesh, Name: x.Name}
		d, ok := f.Snap.Damaged(k)
		if !ok {
			continue // it was healed meanwhile
		}
		var what string
		switch {
		case !d.Holds:
			what = "no proxy depends on it"
		case k.Mesh == "" && k.Kind != kindMesh:
			what = "all meshes keep their config"
		default:
			what = "the proxies of mesh " + cmp.Or(k.Mesh, k.Name) + " keep their config"
		}
		out = append(out, api.Problem{Resource: k.String(), Severity: api.SeverityError, Check: api.ClassDamaged,
			Reason: fmt.Sprintf("it cannot be read from the state file since %s (%s), so %s: %s",
				d.Since.Format(time.RFC3339), d.Reason, what, d.Remedy())})
	}
	return out
}

// inertProblems returns one problem for stored resources that this version ignores.
func inertProblems(_ context.Context, f *Facts) []api.Problem {
	inert := f.Status.Store.Inert
	if len(inert) == 0 {
		return nil
	}
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(inert)) {
		list = append(list, fmt.Sprintf("%d %s", inert[kind], kind))
	}
	return []api.Problem{{Severity: api.SeverityWarning, Check: api.ClassInert,
		Reason: "stored, but this version ignores them: " + strings.Join(list, ", ") +
			"; upgrade nearside, or delete the resources"}}
}

// fileProblems returns the faults, conflicts, and exposed secrets of resource files, and the files
// that are missing.
func fileProblems(_ context.Context, f *Facts) (out []api.Problem) {
	for _, x := range f.Status.Files {
		add := func(severity, class, key, command, reason string) {
			out = append(out,
				api.Problem{Resource: key, Severity: severity, Check: class, Reason: reason, Command: command})
		}
		for _, fault := range x.Faults {
			add(api.SeverityError, api.ClassFileFault, "", "nearside validate -f "+x.Path, fault.String())
		}
		for _, key := range slices.Sorted(maps.Keys(x.Conflicts)) {
			add(api.SeverityError, api.ClassFileConflict, key, "",
				fmt.Sprintf("%s: it is managed by %s, so the file does not change it", x.Path, x.Conflicts[key]))
		}
		if x.Missing != "" {
			add(api.SeverityWarning, api.ClassFileMissing, "", "ls -l "+x.Path,
				fmt.Sprintf("%s: %s, %s", x.Path, x.Missing, api.KeptUntil(x.KeptUntil)))
		}
		if x.Exposed != "" {
			add(api.SeverityWarning, api.ClassFileExposed, "", "ls -l "+x.Path, x.Path+" "+x.Exposed)
		}
	}
	return out
}
