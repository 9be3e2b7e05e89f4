package disk

// fate is what becomes of one write that was not synced.
type fate int

const (
	dropped fate = iota
	kept
	torn    // some of its sectors
	garbled // some of its sectors, and garbage in others
)

// apply is b after the op met its fate.
func (f fate) apply(b []byte, op Op, sector int, d *Disk) []byte {
	switch {
	case f == dropped:
		return b
	case op.Kind == Truncate:
		return truncate(b, op.Off)
	case f == kept:
		return write(b, op.Off, op.Data)
	}
	size := int64(sector)
	end := op.Off + int64(len(op.Data))
	for at := op.Off / size * size; at < end; at += size {
		from, to := max(at, op.Off), min(at+size, end)
		part := op.Data[from-op.Off : to-op.Off]
		switch luck := d.rnd.IntN(3); {
		case luck == 0:
			b = write(b, from, part)
		case luck == 1 && f == garbled:
			b = d.garbage(b, at, from, to, size)
		}
	}
	return b
}

// garbage fills the sector at, or those of its bytes that were written.
func (d *Disk) garbage(b []byte, at, from, to, size int64) []byte {
	if d.WholeSectors {
		from, to = at, at+size
	}
	junk := make([]byte, to-from)
	for i := range junk {
		junk[i] = byte(d.rnd.Uint32())
	}
	return write(b, from, junk)
}

func write(b []byte, off int64, data []byte) []byte {
	if need := int(off) + len(data); need > len(b) {
		b = append(b, make([]byte, need-len(b))...)
	}
	copy(b[off:], data)
	return b
}

func truncate(b []byte, n int64) []byte {
	if int(n) <= len(b) {
		return b[:n:n]
	}
	return append(b, make([]byte, int(n)-len(b))...)
}
