package deadletter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Letter is a dead or unknown entry as a reviewer sees it.
type Letter struct {
	ID                         int64
	StatusRef                  string
	Tenant, Subject, Tool, Key string
	State                      entry.State
	Reason                     string
	Round, Attempts            int
	DueAt                      time.Time // of an unknown that will be asked about; zero: held
	ChangedAt                  time.Time // since when it stands so
	Class, Code, Excerpt       string    // of the last evidence
}

// Fingerprint is that of its last evidence.
func (l Letter) Fingerprint() string { return Fingerprint(l.Tool, l.Reason, l.Code, l.Excerpt) }

// Selection is some of the dead and unknown entries, in the order of acceptance.
// The zero value of each field is any.
type Selection struct {
	States       []entry.State // dead, unknown
	Tool, Reason string
	Fingerprint  string
	Before       time.Time // it stands so since before that instant
	After        int64     // id that the selection begins behind
}

const lettersSQL = `SELECT e.operation_id, o.status_ref, o.tenant_id, o.subject_id, e.tool_name, o.idempotency_key,
	e.state, e.reason, e.round, e.attempts, e.due_at, e.changed_at, a.class, a.code, a.excerpt
	FROM outbox_entry AS e INDEXED BY outbox_entry_kept
	CROSS JOIN outbox_operation AS o ON o.id = e.operation_id
	LEFT JOIN outbox_attempt AS a ON a.id = (SELECT max(x.id) FROM outbox_attempt AS x WHERE x.operation_id = e.operation_id)
	WHERE e.state = ?1 AND (e.state = 'waiting' OR e.state = 'unknown' OR e.state = 'dead' OR e.state = 'discarded')
	AND e.operation_id > ?2 AND (?3 = '' OR e.tool_name = ?3) AND (?4 = '' OR e.reason = ?4)
	AND (?5 IS NULL OR e.changed_at < ?5) ORDER BY e.operation_id`

// errLast ends the reading of letters.
var errLast = errors.New("enough letters")

// Each calls fn for every letter of the selection, state by state.
func (s Selection) Each(q ledger.Querier, fn func(Letter) error) error {
	for _, state := range []entry.State{entry.Dead, entry.Unknown} {
		if len(s.States) > 0 && !slices.Contains(s.States, state) {
			continue
		}
		err := q.Each(func(r *ledger.Row) error {
			var l Letter
			err := r.Scan(&l.ID, &l.StatusRef, &l.Tenant, &l.Subject, &l.Tool, &l.Key, &l.State, &l.Reason, &l.Round,
				&l.Attempts, &l.DueAt, &l.ChangedAt, &l.Class, &l.Code, &l.Excerpt)
			if err != nil || s.Fingerprint != "" && l.Fingerprint() != s.Fingerprint {
				return err
			}
			return fn(l)
		}, lettersSQL, state, s.After, s.Tool, s.Reason, s.Before)
		if err != nil && !errors.Is(err, errLast) {
			return fmt.Errorf("read letters: %w", err)
		}
	}
	return nil
}

// First lists up to n letters.
func (s Selection) First(q ledger.Querier, n int) ([]Letter, error) {
	var list []Letter
	counts := map[entry.State]int{}
	err := s.Each(q, func(l Letter) error {
		if counts[l.State] == n {
			return errLast
		}
		counts[l.State]++
		list = append(list, l)
		return nil
	})
	slices.SortFunc(list, func(a, b Letter) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(len(list), n)], err
}

// Group is letters of one fingerprint.
type Group struct {
	Fingerprint   string
	Tool, Reason  string
	Code, Excerpt string // the excerpt as Normal has it
	Dead, Unknown int
	First, Last   time.Time // since when they stand so
	Example       string    // the status_ref of one of them
}

// Groups gathers the selection by fingerprint, the largest group first.
func (s Selection) Groups(q ledger.Querier) ([]Group, error) {
	groups := map[string]*Group{}
	err := s.Each(q, func(l Letter) error {
		print := l.Fingerprint()
		g := groups[print]
		if g == nil {
			g = &Group{Fingerprint: print, Tool: l.Tool, Reason: l.Reason, Code: l.Code, Excerpt: Normal(l.Excerpt),
				First: l.ChangedAt, Last: l.ChangedAt, Example: l.StatusRef}
			groups[print] = g
		}
		if l.State == entry.Dead {
			g.Dead++
		} else {
			g.Unknown++
		}
		if l.ChangedAt.Before(g.First) {
			g.First = l.ChangedAt
		}
		if l.ChangedAt.After(g.Last) {
			g.Last = l.ChangedAt
		}
		return nil
	})
	list := make([]Group, 0, len(groups))
	for _, g := range groups {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Dead+b.Unknown, a.Dead+a.Unknown), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return list, err
}
