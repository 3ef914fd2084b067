// Package write decides the writes of the API and stores them: put, delete, apply, rollback, and
// restore. A dry run is the same decision without the last step.
//
// A write is decided once, on one snapshot of the store: whether the caller may do it, whether the
// sources of the resources and the preconditions of the request allow it, and what it does to
// proxies. The store takes it only while it has that content. Where that has changed meanwhile, the
// write is decided on the new content. The reconcile loop publishes the configs that the check has
// made, as they were checked.
package write
