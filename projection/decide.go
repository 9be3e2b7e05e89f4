package projection

// decide says what becomes of a result of the turn source while the turn current is
// the session's, and whether the foreground of source is open. It knows no other
// target than the turn that asked.
func decide(source, current int64, open bool) (target int64, decision string) {
	if source == current && open {
		return source, Written
	}
	return 0, Quarantined
}
