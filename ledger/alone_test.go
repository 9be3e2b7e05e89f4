package ledger

import "testing"

func TestSoleHolder(t *testing.T) {
	const (
		mine    = "1: POSIX  ADVISORY  READ 77 fe:00:4711 128 128\n"
		other   = "2: POSIX  ADVISORY  READ 78 fe:00:4711 128 128\n"
		waiting = "2: -> POSIX  ADVISORY  WRITE 78 fe:00:4711 120 120\n"
		foreign = "3: FLOCK  ADVISORY  WRITE 78 fe:00:4712 0 EOF\n"
	)
	for name, tt := range map[string]struct {
		locks string
		want  bool
	}{
		"nobody is listed": {"", false},
		"only this one":    {mine + foreign, true},
		"another":          {mine + other, false},
		"another first":    {other + mine, false},
		"another waits":    {mine + waiting, false},
		"not even this":    {foreign, false},
		"another format":   {"4711\n" + mine, true},
	} {
		if got := soleHolder([]byte(tt.locks), 77, 4711); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
