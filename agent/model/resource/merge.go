package resource

import "github.com/nearside-mesh/nearside/agent/model/value"

// Merge merges confs field by field; later confs take precedence. As in JSON merge patch (RFC
// 7396), mappings are merged, absent fields leave the earlier value unchanged, and all other
// values, including lists, are replaced. Tags on a field of a conf change this:
//
//	merge:"append"      items of the later list follow those of the earlier one
//	merge:"key=Field"   items with equal Field are merged; new items follow
//	merge:"also=Field"  a later value also removes the earlier value of Field, an alternative form
//	merge:"first=Field" items with equal Field are merged; items of the later list come first, in its order
//
// All confs have the same type. Merge does not change them; callers must not modify the result,
// which shares memory with them. For a single conf the result is that conf; for none it is nil.
func Merge(confs ...Conf) Conf {
	if len(confs) == 0 {
		return nil
	}
	last := confs[len(confs)-1]
	if _, raw := last.(*RawConf); raw || len(confs) == 1 {
		return last
	}
	return value.MergeAll(confs)
}
