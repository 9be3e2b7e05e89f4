package poller_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/entry"
)

func (s *seen) Claimed(_ string, lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lags = append(s.lags, lag)
}

func (s *seen) TookIn(accepted, repeated, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tookIn = [3]int{s.tookIn[0] + accepted, s.tookIn[1] + repeated, s.tookIn[2] + refused}
}

func (s *seen) Again(_ string, effect entry.Effect, conflict bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again = append(s.again, fmt.Sprint(effect, " ", conflict))
}

// Two attempts of one entry succeed: whichever of them is heard first, it is told
// once.
func TestASecondSuccessOfAnEntryIsTold(t *testing.T) {
	for _, c := range []struct {
		name, first, want string
	}{
		{"the holder first", "B", "[idempotent true]"}, // the results differ: {"by":"A"}, {"by":"B"}
		{"the late one first", "A", "[idempotent false]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			story(t, func(t *testing.T) {
				z := twoProcesses(t, entry.Idempotent)
				pass(6 * time.Second)
				if c.first == "A" {
					z.answerA <- nil
					synctest.Wait()
				}
				z.answerB <- nil
				synctest.Wait()
				if c.first == "B" {
					z.answerA <- nil
					synctest.Wait()
				}
				z.b.expect(z.id, entry.Delivered, "")
				equal(t, "told", fmt.Sprint(append(z.a.seen.again, z.b.seen.again...)), c.want)
			})
		})
	}
}

func TestOneSuccessIsNoSecondOne(t *testing.T) {
	story(t, func(t *testing.T) {
		z := twoProcesses(t, entry.Idempotent)
		pass(6 * time.Second)
		z.answerA <- errLost
		synctest.Wait()
		z.answerB <- nil
		synctest.Wait()
		z.b.expect(z.id, entry.Delivered, "")
		equal(t, "told", len(z.a.seen.again)+len(z.b.seen.again), 0)
		equal(t, "claims", len(z.a.seen.lags)+len(z.b.seen.lags), 2)
	})
}
