package poller

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/outboxd/outboxd/contract"
)

// suspectTime is how long a suspect must have run before another may start.
const suspectTime = 5 * time.Second

// burstTime is how much of a rate may start at once: looking for each attempt
// alone would be slower than high rates are.
const burstTime = 50 * time.Millisecond

// finish is a slot that comes free.
type finish struct {
	tool string
	id   int64
}

// slots is what may start now. It belongs to the goroutine of Run.
type slots struct {
	total    int
	running  int
	tools    map[string]int
	limits   map[string]*limit
	suspects map[int64]time.Time // running suspects and when they started
	backlog  bool                // the last pass left due work behind
}

type limit struct {
	rate contract.Rate
	*rate.Limiter
}

func newSlots(total int) slots {
	return slots{total: total, tools: map[string]int{}, limits: map[string]*limit{}, suspects: map[int64]time.Time{}}
}

func (s *slots) free() int { return s.total - s.running }

func (s *slots) start(tool string, id int64, suspect bool) {
	s.running++
	s.tools[tool]++
	if suspect {
		s.suspects[id] = time.Now()
	}
	if l := s.limits[tool]; l != nil {
		l.AllowN(time.Now(), 1)
	}
}

func (s *slots) reap(f finish) {
	s.running--
	s.tools[f.tool]--
	delete(s.suspects, f.id)
}

// gathering: more slots will come free at once, and claiming them together is
// cheaper than one by one.
func (s *slots) gathering() bool {
	return s.backlog && s.running > 0 && s.free() < (s.total+1)/2
}

// quota is how many attempts of the tool may start now, and if that is limited
// by its rate, when the next one may.
func (s *slots) quota(t *contract.Tool) (n int, wait time.Duration) {
	n = max(0, min(s.free(), t.Concurrency-s.tools[t.Name])) // a reload may have lowered it
	if t.Rate.Events == 0 {
		delete(s.limits, t.Name)
		return n, 0
	}
	l := s.limits[t.Name]
	if l == nil || l.rate != t.Rate {
		every := t.Rate.Per / time.Duration(t.Rate.Events)
		burst := max(1, int(burstTime/every))
		l = &limit{t.Rate, rate.NewLimiter(rate.Every(every), burst)}
		s.limits[t.Name] = l
	}
	now := time.Now()
	tokens := l.TokensAt(now)
	if allowed := int(tokens); allowed < n {
		wait = time.Duration((1 - (tokens - float64(allowed))) / float64(l.Limit()) * float64(time.Second))
		n = allowed
	}
	return n, wait
}

// suspect: one may start now, else how long until another one may.
func (s *slots) suspect(now time.Time) (ok bool, wait time.Duration) {
	for _, since := range s.suspects {
		if left := suspectTime - now.Sub(since); left > wait {
			wait = left
		}
	}
	return wait == 0, wait
}
