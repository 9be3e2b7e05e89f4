package ledger

// Pulse grows whenever the committer has done another turn: at the latest after a
// Poke, unless it is stuck, for instance in a disk that does not answer. It also
// grows while another process holds the write lock.
func (l *Ledger) Pulse() uint64 { return l.pulse.Load() }

// Poke has the committer do a turn.
func (l *Ledger) Poke() { l.q.signal() }
