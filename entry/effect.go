package entry

// Effect says what a downstream allows after a request whose fate is unknown.
type Effect string

// The effect classes. Opaque is what a tool is unless its config says more.
const (
	Idempotent Effect = "idempotent" // deduplicates on the wire key: may be sent again
	Queryable  Effect = "queryable"  // can be asked what became of a wire key
	Local      Effect = "local"      // effect and receipt are one commit in this file
	Opaque     Effect = "opaque"     // neither: never sent twice, an unknown goes to a person
)

// Marked reports whether a claim of this class is already a mark: such a
// request may be sent again, or cannot leave this process, so a commit of its
// own before the first byte would prove nothing.
func (e Effect) Marked() bool { return e == Idempotent || e == Local }
