// Package write decides writes of the API and stores them: put, delete, apply, rollback, and
// restore. A dry run makes the same decision without storing.
//
// A write is decided once, on one snapshot of the store: whether the caller may do it, whether the
// sources of the resources and the preconditions of the request allow it, and how it affects
// proxies. The store accepts it only while it has that content; otherwise the write is decided
// again on the new content. The reconcile loop publishes exactly the configs that the check has
// computed.
package write
