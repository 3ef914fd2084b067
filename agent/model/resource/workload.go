package resource

// Workload names a workload, whose Dataplanes have the label kuma.io/workload with its name. Kuma
// generates it and counts the Dataplanes in its status. It configures no proxy, so it is stored
// without effect.
type Workload struct {
	Status *ServiceStatus `json:"-"`
}

// Validate accepts every Workload: it has no fields.
func (w *Workload) Validate(v *Validator) { w.Status.validate(v.Field("status")) }

func (w *Workload) status() **ServiceStatus { return &w.Status }
